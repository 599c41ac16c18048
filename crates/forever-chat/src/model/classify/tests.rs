//! One line for each way in which a provider says what went wrong.
use ModelErrorKind::{ContextOverflow, Denied, Invalid, Other, RateLimited, Transient};

use crate::model::classify::*;

const TABLE: &[(u16, &str, ModelErrorKind)] = &[
    // OpenAI.
    (
        429,
        r#"{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000. The input or output tokens must be reduced.","type":"tokens","code":"rate_limit_exceeded"}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
        Denied,
    ),
    (
        400,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        ContextOverflow,
    ),
    (
        400,
        r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":null}}"#,
        ContextOverflow,
    ),
    (
        401,
        r#"{"error":{"message":"Incorrect API key provided: sk-abc***xyz.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
        Denied,
    ),
    (403, r#"{"error":{"message":"Country, region, or territory not supported","code":"unsupported_country_region_territory"}}"#, Denied),
    (
        404,
        r#"{"error":{"message":"The model `gpt-9` does not exist or you do not have access to it.","type":"invalid_request_error","code":"model_not_found"}}"#,
        Invalid,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid schema for function 'search'","type":"invalid_request_error","param":"tools[0]","code":"invalid_function_parameters"}}"#,
        Invalid,
    ),
    (
        500,
        r#"{"error":{"message":"The server had an error while processing your request. Sorry about that!","type":"server_error","code":null}}"#,
        Transient,
    ),
    (503, r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error"}}"#, Transient),
    (503, r#"{"error":{"message":"Slow down","type":"slow_down"}}"#, Transient),
    (200, r#"{"type":"error","code":"server_error","message":"Something went wrong","param":null,"sequence_number":5}"#, Transient),
    (
        200,
        r#"{"type":"error","sequence_number":2,"error":{"type":"too_many_requests","code":"too_many_requests","message":"Too Many Requests","param":null}}"#,
        RateLimited,
    ),
    (
        200,
        r#"{"type":"error","sequence_number":2,"error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"Your input exceeds the context window of this model.","param":"input"}}"#,
        ContextOverflow,
    ),
    (200, r#"{"code":"rate_limit_exceeded","message":"Rate limit reached for gpt-5 on tokens per min."}"#, RateLimited),
    (200, r#"{"code":"server_error","message":"The model failed to generate a response."}"#, Transient),
    (200, r#"{"code":"invalid_prompt","message":"Invalid prompt: your prompt was flagged."}"#, Invalid),
    (200, r#"{"code":"vector_store_timeout","message":"The vector store did not answer."}"#, Transient),
    // Anthropic.
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
        ContextOverflow,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 190000 + 16384 > 200000"}}"#,
        ContextOverflow,
    ),
    (413, r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#, ContextOverflow),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1: `tool_use` ids were found without `tool_result` blocks immediately after"}}"#,
        Invalid,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
        Denied,
    ),
    (401, r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"},"request_id":"req_1"}"#, Denied),
    (403, r#"{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission"}}"#, Denied),
    (404, r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#, Invalid),
    (
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"Number of request tokens has exceeded your per-minute rate limit"}}"#,
        RateLimited,
    ),
    (500, r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#, Transient),
    (504, r#"{"type":"error","error":{"type":"timeout_error","message":"Request timed out"}}"#, Transient),
    (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Transient),
    (200, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Transient),
    (200, r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#, Transient),
    (200, r#"{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"}}"#, RateLimited),
    (
        200,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 5 tokens > 4 maximum"}}"#,
        ContextOverflow,
    ),
    // vLLM, llama.cpp, Ollama, OpenRouter, Google, Mistral, xAI, Groq, DeepSeek, text-generation-inference.
    (
        400,
        r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens","type":"BadRequestError","param":null,"code":400}"#,
        ContextOverflow,
    ),
    (200, r#"{"object":"error","message":"engine died","type":"InternalServerError","param":null,"code":500}"#, Transient),
    (200, r#"{"code":400,"details":"Requested sample logprobs of 21, which is greater than max allowed: 20"}"#, Invalid),
    (
        400,
        r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}"#,
        ContextOverflow,
    ),
    (503, r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#, Transient),
    (404, r#"{"error":"model 'llama9' not found"}"#, Invalid),
    (402, r#"{"error":{"code":402,"message":"Insufficient credits","metadata":{}}}"#, Denied),
    (200, r#"{"error":{"code":502,"message":"Provider returned error"}}"#, Transient),
    (200, r#"{"error":{"code":429,"message":"Provider is busy"}}"#, RateLimited),
    (
        400,
        r#"{"error":{"code":400,"message":"This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens."}}"#,
        ContextOverflow,
    ),
    (
        400,
        r#"[{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}]"#,
        ContextOverflow,
    ),
    (429, r#"[{"error":{"code":429,"message":"Quota exceeded for metric","status":"RESOURCE_EXHAUSTED"}}]"#, RateLimited),
    (503, r#"[{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}]"#, Transient),
    (
        400,
        r#"{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","code":3051}"#,
        ContextOverflow,
    ),
    (422, r#"{"detail":[{"loc":["body","messages"],"msg":"field required"}]}"#, Invalid),
    (
        400,
        r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 200000 tokens."}"#,
        ContextOverflow,
    ),
    (
        400,
        r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
        ContextOverflow,
    ),
    (402, r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#, Denied),
    (
        422,
        r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097","error_type":"validation"}"#,
        ContextOverflow,
    ),
    // Whatever is in front of them, and nothing at all.
    (502, "<html><head><title>502 Bad Gateway</title></head></html>", Transient),
    (524, "", Transient),
    (408, "", Transient),
    (409, "", Transient),
    (425, "", Transient),
    (501, "", Invalid),
    (401, "", Denied),
    (402, "", Denied),
    (403, "Forbidden", Denied),
    (404, "", Invalid),
    (422, "", Invalid),
    (429, "", RateLimited),
    (302, "", Other),
    (200, "", Transient),
    (200, r#"{"error":{"message":"something else"}}"#, Transient),
];

#[test]
fn each_error_of_the_providers_is_of_the_right_kind() {
    let wrong: Vec<String> = TABLE
        .iter()
        .filter_map(|&(status, body, kind)| {
            let found = classify(status, body).kind();
            (found != kind).then(|| format!("{status} {body}\n  is {found:?} and should be {kind:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_text_is_what_the_provider_says() {
    assert_eq!(
        classify(404, r#"{"error":{"message":"The model `gpt-9` does not exist"}}"#).to_string(),
        "the provider answered 404: The model `gpt-9` does not exist"
    );
    assert_eq!(classify(529, "").to_string(), "the provider answered 529");
    assert_eq!(
        classify(200, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#).to_string(),
        "the provider's answer broke off: Overloaded"
    );
}

#[test]
fn a_long_body_is_shortened_between_two_characters() {
    let text = classify(500, &"ä".repeat(100_000)).to_string();
    assert_eq!(text, format!("the provider answered 500: {}…", "ä".repeat(MAX_TEXT)));
}

#[test]
fn what_looks_like_a_key_is_not_repeated() {
    for (message, clean) in [
        ("Incorrect API key provided: sk-proj-0123456789abcdef. Look here.", "Incorrect API key provided: [key]. Look here."),
        ("bad header `Authorization: Bearer abcdef0123456789`", "bad header `Authorization: Bearer [key]`"),
        ("key=AIzaSyA0123456789 is blocked", "key=[key] is blocked"),
        ("\"gsk_0123456789abcdef\", \"sk-short\"", "\"[key]\", \"sk-short\""),
    ] {
        let error = classify(401, &serde_json::json!({ "error": { "message": message } }).to_string());
        assert_eq!(error.to_string(), format!("the provider answered 401: {clean}"));
    }
}

#[test]
fn the_page_of_a_server_on_the_way_is_not_passed_on() {
    for body in
        ["<html><body>nginx/1.2 at 10.0.0.7</body></html>", "  <!DOCTYPE html><p>10.0.0.7", r#"{"error":{"message":"<h1>10.0.0.7</h1>"}}"#]
    {
        assert_eq!(classify(502, body).to_string(), "the provider answered 502", "{body}");
    }
}

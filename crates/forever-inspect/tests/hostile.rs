//! Strangers, pages of others, and clients that send what they please.
use forever::Forever;
use forever::fiber::FiberState;
use forever_inspect::{Inspector, Verdict};
use forever_macros::fiber;
use forever_testkit::prng::Prng;
use forever_testkit::waiting::eventually;

use crate::client::{ask, get, post, raw};
use crate::{in_state, serve};

#[fiber(crate = forever_runtime)]
async fn waits(n: u32) -> Result<u32, forever::Error> {
    let m: u32 = recv!("go");
    Ok(n + m)
}

async fn open() -> Forever {
    Forever::builder().in_memory().fiber::<waits>().open().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_this_machine_by_its_own_name_is_answered() {
    let forever = open().await;
    let at = serve(Inspector::new(&forever)).await;
    for path in ["/", "/assets/app.js", "/api/overview", "/api/events"] {
        for headers in [
            &[("host", "evil.example")][..],
            &[("host", "localhost"), ("x-forwarded-for", "8.8.8.8")],
            &[("host", "localhost"), ("host", "localhost")],
        ] {
            let answer = ask(at, "GET", path, headers, "").await;
            assert!(matches!(answer.status, 400 | 403), "{path} {headers:?}: {}", answer.head);
            assert!(!answer.body.contains("counts") && !answer.body.contains("<html"), "{}", answer.body);
        }
    }
    let page = get(at, "/").await;
    assert_eq!(page.status, 200);
    assert!(
        page.head.contains("content-security-policy: default-src 'none'") && page.head.contains("x-frame-options: deny"),
        "{}",
        page.head
    );
    assert!(page.body.contains("<base href=\"/\""));
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_others_and_readers_change_nothing() {
    let forever = open().await;
    let fiber = forever.spawn(waits(1)).await.unwrap();
    in_state(&forever, fiber.id(), FiberState::Waiting).await;
    let (reads, acts) = (serve(Inspector::new(&forever)).await, serve(Inspector::new(&forever).allow_actions()).await);
    let cancel = format!("/api/fibers/{}/cancel", fiber.id());
    assert_eq!(post(reads, &cancel, "").await.status, 403);
    let own = [("x-forever-inspect", "1"), ("origin", "http://localhost")];
    for headers in [
        &[][..],
        &[("content-type", "text/plain")],
        &[("x-forever-inspect", "1"), ("origin", "http://evil.example")],
        &[("x-forever-inspect", "1"), ("origin", "http://localhost:1")],
        &[("x-forever-inspect", "1"), ("sec-fetch-site", "cross-site")],
    ] {
        assert_eq!(ask(acts, "POST", &cancel, headers, "").await.status, 403, "{headers:?}");
    }
    // A page asks before it sends such a header, and gets no leave.
    let asked =
        ask(acts, "OPTIONS", &cancel, &[("origin", "http://evil.example"), ("access-control-request-headers", "x-forever-inspect")], "")
            .await;
    assert!(asked.status >= 400 && !asked.head.contains("access-control-allow"), "{}", asked.head);
    assert_eq!(forever.status(fiber.id()).await.unwrap().state, FiberState::Waiting);
    assert_eq!(ask(acts, "POST", &cancel, &own, "").await.status, 200);
    in_state(&forever, fiber.id(), FiberState::Cancelled).await;
    // The database is copied over the control socket alone.
    assert_eq!(post(acts, "/api/backup", r#"{"path":"/tmp/stolen.db"}"#).await.status, 403);
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_decides_in_place_of_the_machine() {
    let forever = open().await;
    let hook = |request: &forever_inspect::Request<'_>| match request.headers.get("authorization").map(AsRef::as_ref) {
        Some(b"Bearer reads") if request.is_command => Verdict::Forbidden,
        Some(b"Bearer reads" | b"Bearer acts") => Verdict::Allow,
        _ => Verdict::Unauthorized,
    };
    let at = serve(Inspector::new(&forever).allow_actions().authorize(hook).host("ops.example")).await;
    let with = async |token: &str, method: &str, path: &str| {
        ask(at, method, path, &[("host", "ops.example"), ("authorization", token), ("x-forever-inspect", "1")], "").await.status
    };
    assert_eq!(ask(at, "GET", "/api/overview", &[("host", "ops.example")], "").await.status, 401);
    assert_eq!(ask(at, "GET", "/api/overview", &[("host", "localhost"), ("authorization", "Bearer acts")], "").await.status, 403);
    assert_eq!(with("Bearer reads", "GET", "/api/overview").await, 200);
    assert_eq!(with("Bearer reads", "POST", "/api/fibers/x/cancel").await, 403);
    assert_eq!(with("Bearer acts", "POST", "/api/fibers/x/cancel").await, 404);
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::too_many_lines, reason = "most of them are a table")]
async fn whatever_is_sent_gets_an_error_and_harms_nothing() {
    let forever = open().await;
    let fiber = forever.spawn(waits(1)).await.unwrap();
    in_state(&forever, fiber.id(), FiberState::Waiting).await;
    let at = serve(Inspector::new(&forever).allow_actions()).await;
    for path in [
        "/api/fibers?limit=-1",
        "/api/fibers?limit=x",
        "/api/chats?limit=x",
        "/api/chats?before=x",
        "/api/chats?other=1",
        "/api/chats/%FF/x",
        "/api/chats/Desk/nothing",
        "/api/agents?limit=-1",
        "/api/fibers?key=",
        "/api/fibers?name=%20",
        "/api/fibers?state=,",
        "/api/fibers?metadata=%26",
        "/api/fibers?after=x",
        "/api/fibers?after=1e99",
        "/api/fibers?state=sleepy",
        "/api/fibers?agent=x",
        "/api/fibers?metadata=x",
        "/api/fibers?metadata=%7B",
        "/api/fibers?metadata=%7B%7D",
        "/api/fibers?metadata=%7B%22a%22%3A1%7D%26b",
        "/api/fibers?other=1",
        "/api/fibers?in_doubt=maybe",
        "/api/fibers?created_from_ms=99999999999999999999",
        "/api/fibers/nothing",
        "/api/fibers/%00%ff",
        "/api/fibers/nothing/at/1",
        "/api/fibers/nothing/at/x",
        "/api/fibers/nothing/at/99999999999999999999999",
        "/api/fibers/nothing/export",
        "/api/fibers/..%2f..%2fetc%2fpasswd",
        "/api/functions/nothing",
        "/assets/..%2f..%2flib.rs",
        "/assets/nothing",
        "/api/nothing",
        "/nothing",
        "/api/schedules?limit=x",
        &format!("/api/fibers?text={}", "x".repeat(60_000)),
    ] {
        let answer = get(at, path).await;
        assert!((400..500).contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
        assert!(!path.starts_with("/api/") || answer.json()["error"].is_string(), "{path}: {}", answer.body);
    }
    // Odd, and right.
    for path in [
        "/api/fibers?created_from_ms=-9223372036854775808",
        "/api/fibers?limit=4000000000",
        "/api/fibers?text=%25'%22%5C;--",
        "/api/fibers?key=%F0%9F%92%A3",
        "/api/fibers?metadata=a%22b=%7B",
    ] {
        assert_eq!(get(at, path).await.status, 200, "{path}");
    }
    let send = format!("/api/fibers/{}/send", fiber.id());
    let discard = format!("/api/fibers/{}/discard", fiber.id());
    let (edit, fork) = (format!("/api/fibers/{}/edit", fiber.id()), format!("/api/fibers/{}/fork", fiber.id()));
    for (path, body) in [
        (&*send, "{"),
        (&send, "[]"),
        (&send, r#"{"topic":"go"}"#),
        (&send, r#"{"value":1}"#),
        (&send, r#"{"topic":"other","value":1}"#),
        (&send, r#"{"topic":"go","value":"no number"}"#),
        (&send, r#"{"topic":"go","value":1,"more":2}"#),
        (&*discard, "{}"),
        (&discard, r#"{"number":"1"}"#),
        (&discard, r#"{"number":1.5}"#),
        (&discard, r#"{"number":9223372036854775808}"#),
        (&*edit, "{}"),
        (&edit, r#"{"set":[1]}"#),
        (&edit, r#"{"set":{"other":1}}"#),
        (&edit, r#"{"set":{"n":"no number"}}"#),
        (&edit, &format!("{{\"set\":{{\"n\":{}{}}}}}", "[".repeat(5000), "]".repeat(5000))),
        (&*fork, r#"{"at":-1}"#),
        (&fork, r#"{"at":77}"#),
        (&fork, r#"{"id":" "}"#),
        (&fork, &format!("{{\"id\":\"{}\"}}", "x".repeat(600))),
        (&fork, r#"{"set":{"n":{"$log":0,"len":9}}}"#),
        ("/api/import", "{}"),
        ("/api/import", r#"{"export":{}}"#),
        ("/api/import", r#"{"export":{"forever_export":9,"exported_ms":0,"fiber":{}}}"#),
        (&send, &format!("{{\"topic\":\"go\",\"value\":{}1{}}}", "[".repeat(5000), "]".repeat(5000))),
        (&format!("/api/fibers/{}/fly", fiber.id()), ""),
        (&format!("/api/fibers/{}/resume", fiber.id()), ""),
        (&format!("/api/fibers/{}/resolve", fiber.id()), r#"{"how":"complete","value":1}"#),
        ("/api/ops/nothing/resolve", r#"{"how":"completed","value":1}"#),
        ("/api/ops/nothing/resolve", r#"{"how":"guessed"}"#),
        ("/api/bulk", r#"{"action":"cancel","filter":{}}"#),
        ("/api/bulk", r#"{"action":"cancel"}"#),
        ("/api/bulk", r#"{"action":"cancel","filter":{"state":","}}"#),
        ("/api/bulk", r#"{"action":"cancel","filter":{"state":"waiting","key":""}}"#),
        ("/api/bulk", r#"{"action":"cancel","filter":{"metadata":"&"}}"#),
        ("/api/bulk", r#"{"action":"fly","filter":{"state":"failed"}}"#),
        ("/api/bulk", r#"{"action":"fly","filter":{"state":"waiting"}}"#),
        ("/api/bulk", r#"{"action":"cancel","filter":{"all":true}}"#),
        ("/api/backup", "{}"),
    ] {
        let answer = post(at, path, body).await;
        assert!((400..500).contains(&answer.status), "{path} {body:.80}: {} {}", answer.status, answer.body);
        assert!(answer.json()["error"].is_string());
    }
    assert_eq!(post(at, &send, &"x".repeat(2 << 20)).await.status, 413);
    assert_eq!(ask(at, "DELETE", &send, &[("x-forever-inspect", "1")], "").await.status, 405);
    let mut garbage = Vec::new();
    let mut prng = Prng::new(7);
    for length in [1, 17, 300, 5000, 100_000] {
        garbage.clear();
        for _ in 0..length {
            garbage.push(prng.byte());
        }
        let answer = raw(at, &garbage).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let long = raw(at, format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(200_000)).as_bytes()).await;
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 4"), "{long:.60}");
    assert_eq!(get(at, "/api/overview").await.status, 200);
    assert_eq!(forever.status(fiber.id()).await.unwrap().state, FiberState::Waiting);
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_watch_are_bounded_and_are_forgotten_when_they_go() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let forever = open().await;
    let at = serve(Inspector::new(&forever)).await;
    let watch = async || {
        let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
        stream.write_all(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        (stream, String::from_utf8_lossy(&head[9..]).into_owned())
    };
    let mut watching = Vec::new();
    for _ in 0..64 {
        let (stream, status) = watch().await;
        assert_eq!(status, "200");
        watching.push(stream);
    }
    assert_eq!(watch().await.1, "503");
    drop(watching);
    // Their ends are seen when there is something to tell.
    let fiber = forever.spawn(waits(1)).await.unwrap();
    in_state(&forever, fiber.id(), FiberState::Waiting).await;
    eventually("the place of a page that has gone", async || watch().await.1 == "200").await;
    forever.close().await.unwrap();
}

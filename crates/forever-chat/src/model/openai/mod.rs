//! OpenAI's two protocols: its Responses API, and chat completions, which most other providers use
//! as well.
mod completions;
mod responses;

pub use completions::OpenAiCompatible;
pub use responses::OpenAiResponses;

const BASE_URL: &str = "https://api.openai.com/v1";

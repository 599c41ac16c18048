//! Tests of messages, most of them against what the npm package `ai` does: `recorded` was written by `scripts/record-ui-messages`.
mod recorded;

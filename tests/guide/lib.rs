//! The README and the pages of `docs/guide`, whose code is compiled and run: each is the documentation
//! of an item.
//!
//! `cargo test -p forever-guide --doc` runs it. Code that a page takes from `examples/` is compiled there.
#![forbid(unsafe_code)]

macro_rules! pages {
    ($($name:ident $path:literal)*) => {$(
        #[doc = include_str!(concat!("../../", $path))]
        #[cfg(doctest)]
        pub mod $name {}
    )*};
}

pages! {
    readme "README.md"
    introduction "docs/guide/src/introduction.md"
    getting_started "docs/guide/src/getting-started.md"
    concepts "docs/guide/src/concepts.md"
    coming_from "docs/guide/src/coming-from.md"
    errors "docs/guide/src/errors.md"
    effects "docs/guide/src/effects.md"
    transactions "docs/guide/src/transactions.md"
    approval "docs/guide/src/approval.md"
    fan_out "docs/guide/src/fan-out.md"
    streams "docs/guide/src/streams.md"
    schedules "docs/guide/src/schedules.md"
    web_service "docs/guide/src/web-service.md"
    deploys "docs/guide/src/deploys.md"
    testing "docs/guide/src/testing.md"
    agents "docs/guide/src/agents.md"
    chat "docs/guide/src/chat.md"
    logs "docs/guide/src/operations/logs.md"
    metrics "docs/guide/src/operations/metrics.md"
    repair "docs/guide/src/operations/repair.md"
    runbook "docs/guide/src/operations/runbook.md"
    many_workers "docs/guide/src/operations/many-workers.md"
    backup "docs/guide/src/operations/backup.md"
    upgrades "docs/guide/src/operations/upgrades.md"
    sizing "docs/guide/src/operations/sizing.md"
    macros "docs/guide/src/reference/macros.md"
    options "docs/guide/src/reference/options.md"
    error_kinds "docs/guide/src/reference/errors.md"
    wire "docs/guide/src/reference/wire.md"
    expansion "docs/guide/src/internals/expansion.md"
    reliability "docs/guide/src/internals/reliability.md"
}

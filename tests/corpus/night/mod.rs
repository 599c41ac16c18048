//! The subjects that only the night builds.
mod assistants;
mod chat;
mod clinic;
mod coding;
mod documents;
mod etl;
mod finance;
mod harvest;
mod hiring;
mod idioms;
mod logistics;
mod monitoring;
mod newsroom;
mod orchestration;
mod planning;
mod ports;
mod research;
mod review;
mod scraping;
mod support_desk;
mod tools;
mod travel;
mod workshop;

/// The names of their bodies.
pub(crate) fn bodies() -> Vec<&'static str> {
    [
        assistants::BODIES,
        chat::BODIES,
        clinic::BODIES,
        coding::BODIES,
        documents::BODIES,
        etl::BODIES,
        finance::BODIES,
        harvest::BODIES,
        hiring::BODIES,
        idioms::BODIES,
        logistics::BODIES,
        monitoring::BODIES,
        newsroom::BODIES,
        orchestration::BODIES,
        planning::BODIES,
        ports::BODIES,
        research::BODIES,
        review::BODIES,
        scraping::BODIES,
        support_desk::BODIES,
        tools::BODIES,
        travel::BODIES,
        workshop::BODIES,
    ]
    .concat()
}

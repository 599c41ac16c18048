//! What a run of the generator has come to.
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) by: BTreeMap<&'static str, usize>,
    /// Runs that parked, by what the reason is about.
    pub(crate) parked: BTreeMap<&'static str, usize>,
    /// Runs that parked although `can_resume` says that all resume, by the same.
    pub(crate) not_in_layouts: BTreeMap<&'static str, usize>,
}

impl Counts {
    pub(crate) fn add(&mut self, what: &'static str) {
        self.add_if(what, true);
    }

    pub(crate) fn add_if(&mut self, what: &'static str, is_so: bool) {
        *self.by.entry(what).or_default() += usize::from(is_so);
    }

    pub(crate) fn of(&self, what: &str) -> usize {
        self.by.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn add_all(&mut self, other: &Counts) {
        let all = [(&mut self.by, &other.by), (&mut self.parked, &other.parked), (&mut self.not_in_layouts, &other.not_in_layouts)];
        for (to, from) in all {
            for (what, count) in from {
                *to.entry(what).or_default() += count;
            }
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.by {
            write!(f, " {what}={count}")?;
        }
        write!(f, "\nparked: {}\nparked, and not to be seen in layouts: {}", listed(&self.parked), listed(&self.not_in_layouts))
    }
}

/// Counts by name.
pub(crate) fn listed<K: fmt::Display>(counts: &BTreeMap<K, usize>) -> String {
    counts.iter().map(|(what, count)| format!("{what}={count}")).collect::<Vec<_>>().join(" ")
}

/// What a reason to park is about.
pub(crate) fn about(reason: &str) -> &'static str {
    match reason {
        _ if reason.contains("cannot resume: ") => "layout",
        _ if reason.contains("may have a field that was renamed") => "field",
        _ if reason.contains("cannot be read as") => "value",
        _ if reason.contains("transaction") => "transaction",
        _ if reason.contains("effect") || reason.starts_with("operation `") => "operation",
        _ => "other",
    }
}

/// Whether a reason says what to write or to call.
pub(crate) fn has_remedy(reason: &str) -> bool {
    const REMEDIES: [&str; 13] = [
        "write ",
        "`was",
        "was = ",
        "`migrate`",
        "`version`",
        "name = ",
        "leave ",
        "give ",
        "keep ",
        "receive on ",
        "resolve",
        "make it ",
        "#[serde(",
    ];
    REMEDIES.iter().any(|remedy| reason.contains(remedy))
}

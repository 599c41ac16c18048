//! Decides whether an interrupted turn is continued: compares what it has used with the policy.
//! Pure arithmetic, without storage or hooks.
use forever_runtime::store::{IncidentRow, IncidentState};

use crate::recovery::policy::{ExhaustedReason, RecoveryPolicy};

/// Cause of an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The process was gone: it died, or was closed.
    Process,
    /// In this process: a silent stream, a transient error, an agent that did not wake.
    Here,
}

/// State of an interrupted turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) how: Interruption,
    /// Number of chunks in its log.
    pub(crate) chunks: u64,
    /// Amount of work: chunks, and checkpoints of its hook's runs.
    pub(crate) work: u64,
    /// Number of processes that died during the turn.
    pub(crate) deaths: u32,
    pub(crate) now_ms: i64,
}

/// The incident after one more interruption, and the reason to give the turn up, if any.
pub(crate) fn judge(policy: &RecoveryPolicy, before: Option<&IncidentRow>, facts: Facts) -> (IncidentRow, Option<ExhaustedReason>) {
    let incident = next(policy, before, facts);
    let exhausted = if facts.deaths > policy.max_deaths {
        Some(ExhaustedReason::DeathsExceeded)
    } else if incident.attempts > policy.max_attempts {
        Some(ExhaustedReason::MaxAttemptsExceeded)
    } else if facts.work.saturating_sub(incident.began_at) > policy.max_recovery_work {
        Some(ExhaustedReason::WorkBudgetExceeded)
    } else if incident.attempts > 1 && facts.now_ms.saturating_sub(incident.progress_ms) > ms(policy.no_progress_timeout) {
        Some(ExhaustedReason::NoProgressTimeout)
    } else {
        None
    };
    (incident, exhausted)
}

fn next(policy: &RecoveryPolicy, before: Option<&IncidentRow>, facts: Facts) -> IncidentRow {
    let Facts { chunks, work, now_ms, .. } = facts;
    let Some(before) = before else {
        return IncidentRow {
            continues: chunks > 0,
            state: IncidentState::Attempting,
            attempts: 1,
            attempt_ms: now_ms,
            chunks: work,
            began_at: work,
            progress_ms: now_ms,
            reason: None,
            created_ms: now_ms,
        };
    };
    let progress_ms = before.progress_ms.min(now_ms);
    let again = IncidentRow { continues: chunks > 0, state: IncidentState::Attempting, chunks: work, progress_ms, ..before.clone() };
    if work > before.chunks {
        return IncidentRow { attempts: 1, attempt_ms: now_ms, progress_ms: now_ms, ..again };
    }
    // The absolute difference, because the clock may have been set back meanwhile.
    let soon = now_ms.abs_diff(before.attempt_ms) < ms(policy.debounce).unsigned_abs();
    if facts.how == Interruption::Process && soon {
        return again;
    }
    IncidentRow { attempts: before.attempts.saturating_add(1), attempt_ms: now_ms, ..again }
}

fn ms(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: i64 = 60_000;

    fn policy() -> RecoveryPolicy {
        RecoveryPolicy::default()
    }

    fn at(now_ms: i64, work: u64) -> Facts {
        Facts { how: Interruption::Process, chunks: work, work, deaths: 1, now_ms }
    }

    #[test]
    fn case_64_the_budget_is_shared_when_a_retry_becomes_a_continuation() {
        let (first, none) = judge(&policy(), None, at(0, 0));
        assert!(none.is_none() && !first.continues && first.attempts == 1);
        let (second, _) = judge(&policy(), Some(&first), at(MINUTE, 0));
        assert_eq!((second.attempts, second.continues), (2, false));
        let (third, _) = judge(&policy(), Some(&second), at(2 * MINUTE, 3));
        assert_eq!((third.began_at, third.created_ms, third.continues), (0, 0, true), "it is the same incident");
    }

    #[test]
    fn case_65_deaths_soon_after_each_other_are_one_attempt() {
        let (first, _) = judge(&policy(), None, at(0, 1));
        let (second, _) = judge(&policy(), Some(&first), at(29_999, 1));
        assert_eq!((second.attempts, second.attempt_ms), (1, 0));
        let (third, _) = judge(&policy(), Some(&second), at(30_000, 1));
        assert_eq!((third.attempts, third.attempt_ms), (2, 30_000));
    }

    #[test]
    fn what_fails_in_a_process_that_lives_is_an_attempt_however_soon() {
        let (first, _) = judge(&policy(), None, at(0, 1));
        let (second, _) = judge(&policy(), Some(&first), Facts { how: Interruption::Here, ..at(1, 1) });
        assert_eq!(second.attempts, 2);
    }

    #[test]
    fn a_clock_that_was_ahead_does_not_give_a_turn_a_year() {
        let year = 365 * 24 * 60 * MINUTE;
        let mut incident = judge(&policy(), None, at(year, 1)).0;
        for n in 2..=4_u32 {
            incident = judge(&policy(), Some(&incident), at(i64::from(n) * MINUTE, 1)).0;
            assert_eq!(incident.attempts, n, "each counts");
        }
        assert_eq!(judge(&policy(), Some(&incident), at(20 * MINUTE, 1)).1, Some(ExhaustedReason::NoProgressTimeout));
    }

    #[test]
    fn case_66_progress_makes_the_next_attempt_the_first() {
        let mut incident = judge(&policy(), None, at(0, 1)).0;
        for n in 1..=100 {
            let (next, exhausted) = judge(&policy(), Some(&incident), at(n * 10 * MINUTE, 1 + n.cast_unsigned()));
            assert_eq!((next.attempts, exhausted), (1, None), "interruption {n}, long after any time limit");
            incident = next;
        }
    }

    #[test]
    fn case_67_attempts_without_progress_end_at_their_number() {
        let policy = policy();
        let mut incident = judge(&policy, None, at(0, 1)).0;
        for n in 2..=policy.max_attempts {
            let (next, exhausted) = judge(&policy, Some(&incident), at(i64::from(n) * 30_000, 1));
            assert_eq!((next.attempts, exhausted), (n, None));
            incident = next;
        }
        let (_, exhausted) = judge(&policy, Some(&incident), at(i64::from(policy.max_attempts + 1) * 30_000, 1));
        assert_eq!(exhausted, Some(ExhaustedReason::MaxAttemptsExceeded));
    }

    #[test]
    fn case_68_time_without_progress_ends_at_its_limit() {
        let first = judge(&policy(), None, at(0, 1)).0;
        assert_eq!(judge(&policy(), Some(&first), at(5 * MINUTE, 1)).1, None);
        assert_eq!(judge(&policy(), Some(&first), at(5 * MINUTE + 1, 1)).1, Some(ExhaustedReason::NoProgressTimeout));
    }

    #[test]
    fn the_first_attempt_is_made_however_long_nobody_was_there() {
        assert_eq!(judge(&policy(), None, at(i64::from(u32::MAX), 1)).1, None);
    }

    #[test]
    fn case_69_work_after_the_first_interruption_ends_at_its_limit() {
        let first = judge(&policy(), None, at(0, 500)).0;
        assert_eq!(judge(&policy(), Some(&first), at(1, 10_500)).1, None);
        assert_eq!(judge(&policy(), Some(&first), at(1, 10_501)).1, Some(ExhaustedReason::WorkBudgetExceeded));
        let small = policy().max_recovery_work(3);
        assert_eq!(judge(&small, Some(&first), at(1, 504)).1, Some(ExhaustedReason::WorkBudgetExceeded));
    }

    #[test]
    fn deaths_end_at_their_number_whatever_progress_there_was() {
        let first = judge(&policy(), None, at(0, 1)).0;
        let dying = |deaths, chunks| judge(&policy(), Some(&first), Facts { deaths, ..at(MINUTE, chunks) }).1;
        assert_eq!(dying(5, 1), None);
        assert_eq!(dying(6, 1), Some(ExhaustedReason::DeathsExceeded));
        assert_eq!(dying(6, 900), Some(ExhaustedReason::DeathsExceeded), "progress does not reset it");
    }

    #[test]
    fn an_incident_of_a_policy_that_was_changed_is_judged_by_the_new_one() {
        let first = judge(&policy(), None, at(0, 1)).0;
        let strict = policy().max_attempts(1).debounce(Duration::ZERO);
        assert_eq!(judge(&strict, Some(&first), at(1, 1)).1, Some(ExhaustedReason::MaxAttemptsExceeded));
    }
}

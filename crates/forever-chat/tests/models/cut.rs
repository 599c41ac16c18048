//! Answers cut into reads, and cut off, at every byte.
use forever_chat::model::{ModelError, ModelErrorKind};

use crate::support::chunks::Fitting;
use crate::support::{ModelOutput, RECORDED};
use forever_testkit::sizes::stride;

/// Every byte in the night, and one of seven in the gate, with the end.
fn places(length: usize) -> impl Iterator<Item = usize> {
    (0..=length).rev().step_by(stride(7))
}

#[test]
fn chunks_fit_together_and_a_finished_answer_leaves_nothing_open() {
    for recorded in RECORDED {
        let told = recorded.whole();
        let fitting = Fitting::of(&told.events);
        assert!(told.end.is_err() || fitting.is_closed(), "{}", recorded.name);
    }
}

#[test]
fn an_answer_is_the_same_in_two_reads_cut_anywhere() {
    for recorded in RECORDED {
        let (bytes, whole) = (recorded.text.as_bytes(), recorded.whole());
        for cut in places(bytes.len()) {
            assert_eq!(recorded.read([&bytes[..cut], &bytes[cut..]], None), whole, "{} cut at {cut}", recorded.name);
        }
    }
}

#[test]
fn an_answer_is_the_same_in_reads_of_one_byte_and_with_any_line_end() {
    for recorded in RECORDED {
        let whole = recorded.whole();
        for end in ["\n", "\r\n", "\r"] {
            let text = recorded.text.replace('\n', end);
            for size in [1, 2, 3, 7, 1000] {
                assert_eq!(recorded.read(text.as_bytes().chunks(size), None), whole, "{} by {size}, {end:?}", recorded.name);
            }
        }
    }
}

/// Cut off after each byte, both by an end and by a connection that is lost.
#[test]
fn an_answer_that_is_cut_off_is_its_beginning_and_an_error_or_all_of_it() {
    let lost = ModelError::new(ModelErrorKind::Transient, "lost");
    for recorded in RECORDED {
        let (bytes, whole) = (recorded.text.as_bytes(), recorded.whole());
        let mut complete = 0;
        for cut in places(bytes.len()) {
            for end in [None, Some(lost.clone())] {
                let ended = end.is_none();
                let told = recorded.read([&bytes[..cut]], end);
                let at = || format!("{} cut off at {cut}: {}", recorded.name, told.lines());
                Fitting::of(&told.events);
                assert!(whole.events.starts_with(&told.events), "{}", at());
                match &told.end {
                    Ok(finished) => {
                        complete += 1;
                        // Only the count of tokens may be missing.
                        assert_eq!(told.events, whole.events, "{}", at());
                        assert_eq!(Ok(finished.reason), whole.end.as_ref().map(|end| end.reason), "{}", at());
                    }
                    // What the provider itself says went wrong.
                    Err(error) if whole.end.as_ref() == Err(error) => assert_eq!(told, whole, "{}", at()),
                    Err(error) => {
                        assert_eq!(error.kind(), ModelErrorKind::Transient, "{}", at());
                        assert_eq!(error.to_string(), if ended { "the provider's answer was cut off" } else { "lost" });
                    }
                }
            }
        }
        assert_eq!(complete > 0, whole.end.is_ok(), "{}", recorded.name);
    }
}

/// Once the provider has said why it stopped, nothing is missing: an answer that was paid for is not thrown away for its last two bytes.
#[test]
fn an_answer_whose_reason_is_known_is_whole_without_the_last_event() {
    for name in ["completions-text", "completions-tools", "anthropic-text", "anthropic-tools"] {
        let recorded = crate::support::recorded(name);
        let events: Vec<&str> = recorded.text.split_inclusive("\n\n").collect();
        let without_last: String = events[..events.len() - 1].concat();
        let ModelOutput { events, end } = recorded.read([without_last.as_bytes()], None);
        assert_eq!((events, end), (recorded.whole().events, recorded.whole().end), "{name}");
    }
    // A response says all of that in its last event.
    let responses = crate::support::recorded("responses-text");
    let cut = responses.text.rfind("event: response.completed").expect("it is complete");
    assert!(responses.read([&responses.text.as_bytes()[..cut]], None).end.is_err());
}

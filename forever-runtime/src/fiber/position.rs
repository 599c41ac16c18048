//! The position of a `for` loop over something that is not in the snapshot: a constant, a resource, a list that is made anew.
//!
//! A number alone would point to another item once the list has changed. So what is kept is the number of the item under way and a
//! fingerprint of all items up to it, made of their JSON texts. A resumed loop goes over its items from the first one, and skips those
//! that it has done; if they are not what they were, the fiber is parked. What comes behind the item under way may change.
use serde::{Deserialize, Serialize};

/// Where a loop stands.
#[doc(hidden)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Kept")]
pub struct Position {
    /// The place of the item under way, from 0.
    at: usize,
    /// Of the items up to it.
    fingerprint: String,
}

/// What may be stored: earlier versions of this library kept the number alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    Number(usize),
    Whole { at: usize, fingerprint: String },
}

impl From<Kept> for Position {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Number(at) => Position { at, fingerprint: String::new() },
            Kept::Whole { at, fingerprint } => Position { at, fingerprint },
        }
    }
}

/// The way of a loop from its first item on.
#[doc(hidden)]
#[derive(Debug)]
pub struct Way {
    /// Where it is to go on.
    resumes: Option<Position>,
    /// How many items there are, if the iterator says so: all that is known of items without a JSON text.
    of: Option<usize>,
    /// FNV-1a, the same in every build.
    hash: u64,
}

/// What is to be done with an item.
#[doc(hidden)]
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is done.
    Skip,
    /// The loop is under way with it.
    Take(Position),
    /// It, or one before it, is another one than when the snapshot was made.
    Other,
}

impl Way {
    /// A loop over an iterator, from its start or from where it stood.
    pub fn new(resumes: Option<Position>, items: &impl Iterator) -> Self {
        let (at_least, at_most) = items.size_hint();
        Way { resumes, of: at_most.filter(|most| *most == at_least), hash: 0xcbf2_9ce4_8422_2325 }
    }

    /// Comes to the item at place `at`, whose JSON text is `item`.
    pub fn come_to(&mut self, at: usize, item: Option<String>) -> Turn {
        match (item, self.of) {
            (Some(text), _) => self.pass(text.as_bytes()),
            (None, Some(of)) => self.pass(&(of as u64).to_be_bytes()),
            (None, None) => {}
        }
        // What ends an item, so that no two lists run together.
        self.pass(&[0xff]);
        let now = Position { at, fingerprint: format!("{:016x}", self.hash) };
        match &self.resumes {
            Some(there) if at < there.at => Turn::Skip,
            Some(there) if at == there.at && !there.fingerprint.is_empty() && *there != now => Turn::Other,
            _ => Turn::Take(now),
        }
    }

    fn pass(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact;

    /// What a loop over `items` that stood at place `at` of `before` makes of each of its items.
    fn turns(before: &[&str], at: usize, items: &[&str]) -> Vec<&'static str> {
        let text = |item: &&str| Some(format!("{item:?}"));
        let mut way = Way::new(None, &before.iter());
        let mut stood = None;
        for (place, item) in before.iter().enumerate().take(at + 1) {
            let Turn::Take(position) = way.come_to(place, text(item)) else { panic!("it does not begin") };
            stood = Some(exact::from_str(&exact::to_string(&position).unwrap()).unwrap());
        }
        let mut way = Way::new(stood, &items.iter());
        let turn = |(place, item)| match way.come_to(place, text(item)) {
            Turn::Skip => "skip",
            Turn::Take(_) => "take",
            Turn::Other => "other",
        };
        items.iter().enumerate().map(turn).collect()
    }

    #[test]
    fn what_comes_behind_may_change_and_what_was_done_may_not() {
        assert_eq!(turns(&["a", "b", "c"], 1, &["a", "b", "c"]), ["skip", "take", "take"]);
        assert_eq!(turns(&["a", "b", "c"], 1, &["a", "b", "x", "y"]), ["skip", "take", "take", "take"]);
        assert_eq!(turns(&["a", "b", "c"], 1, &["b", "a", "c"])[..2], ["skip", "other"]);
        assert_eq!(turns(&["a", "b", "c"], 1, &["new", "a", "b"])[..2], ["skip", "other"]);
        assert_eq!(turns(&["a", "b", "c"], 1, &["a", "c"]), ["skip", "other"]);
        assert_eq!(turns(&["ab", "c"], 1, &["a", "bc"]), ["skip", "other"]);
        assert_eq!(turns(&["a", "b"], 1, &["a"]), ["skip"], "the code behind the loop parks it");
    }

    #[test]
    fn items_without_a_text_are_known_by_how_many_there_are() {
        let stands = |of: usize| {
            let items = vec![(); of];
            let mut way = Way::new(None, &items.iter());
            way.come_to(0, None);
            let Turn::Take(position) = way.come_to(1, None) else { panic!("it does not begin") };
            position
        };
        let again = |of: usize| {
            let items = vec![(); of];
            let mut way = Way::new(Some(stands(3)), &items.iter());
            way.come_to(0, None);
            way.come_to(1, None)
        };
        assert_eq!(again(3), Turn::Take(stands(3)));
        assert_eq!(again(4), Turn::Other);
    }

    #[test]
    fn a_number_of_an_earlier_version_is_taken_as_it_is() {
        let mut way = Way::new(Some(exact::from_str("1").unwrap()), &[1, 2].iter());
        assert_eq!(way.come_to(0, Some("1".into())), Turn::Skip);
        assert!(matches!(way.come_to(1, Some("2".into())), Turn::Take(_)));
    }
}

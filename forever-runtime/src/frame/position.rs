//! Position of a `for` loop over items that are not in the snapshot: a constant, a resource, a
//! recomputed list.
//!
//! A number alone would point to another item once the list has changed. So the position is the
//! number of the current item and a fingerprint of all items up to it, computed from their JSON
//! texts. A resumed loop starts at the first item and skips the finished ones; if they have
//! changed, the fiber is parked. Items after the current one may change.
use serde::{Deserialize, Serialize};

/// Position of a loop.
#[doc(hidden)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopPosition {
    /// Index of the current item, from 0.
    at: usize,
    /// Fingerprint of the items up to it.
    fingerprint: String,
}

/// Iterates over the items of a loop, from the first one on.
#[doc(hidden)]
#[derive(Debug)]
pub struct LoopCursor {
    /// Position to resume at.
    resumes: Option<LoopPosition>,
    /// Number of items, if the iterator knows it: all that is known of items without a JSON text.
    of: Option<usize>,
    /// FNV-1a, the same in every build.
    hash: u64,
}

/// State of an item in a resumed loop.
#[doc(hidden)]
#[derive(Debug, PartialEq, Eq)]
pub enum LoopItem {
    /// Finished before the snapshot.
    Done,
    /// Next, or under way.
    Current(LoopPosition),
    /// This item, or one before it, has changed since the snapshot.
    Changed,
}

impl LoopCursor {
    /// A loop over an iterator, from its start or from a position.
    pub fn new(resumes: Option<LoopPosition>, items: &impl Iterator) -> Self {
        let (at_least, at_most) = items.size_hint();
        LoopCursor { resumes, of: at_most.filter(|most| *most == at_least), hash: 0xcbf2_9ce4_8422_2325 }
    }

    /// Reaches the item at index `at`, whose JSON text is `item`.
    pub fn come_to(&mut self, at: usize, item: Option<String>) -> LoopItem {
        match (item, self.of) {
            (Some(text), _) => self.pass(text.as_bytes()),
            (None, Some(of)) => self.pass(&(of as u64).to_be_bytes()),
            (None, None) => {}
        }
        // End mark of an item, so that different lists have different fingerprints.
        self.pass(&[0xff]);
        if self.resumes.as_ref().is_some_and(|there| at < there.at) {
            return LoopItem::Done;
        }
        let now = LoopPosition { at, fingerprint: format!("{:016x}", self.hash) };
        match &self.resumes {
            Some(there) if at == there.at && *there != now => LoopItem::Changed,
            _ => LoopItem::Current(now),
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
    fn gone_over(before: &[&str], at: usize, items: &[&str]) -> Vec<&'static str> {
        let text = |item: &&str| Some(format!("{item:?}"));
        let mut cursor = LoopCursor::new(None, &before.iter());
        let mut stood = None;
        for (place, item) in before.iter().enumerate().take(at + 1) {
            let LoopItem::Current(position) = cursor.come_to(place, text(item)) else { panic!("it does not begin") };
            stood = Some(exact::from_str(&exact::to_string(&position).unwrap()).unwrap());
        }
        let mut cursor = LoopCursor::new(stood, &items.iter());
        let what = |(place, item)| match cursor.come_to(place, text(item)) {
            LoopItem::Done => "skip",
            LoopItem::Current(_) => "take",
            LoopItem::Changed => "other",
        };
        items.iter().enumerate().map(what).collect()
    }

    #[test]
    fn what_comes_behind_may_change_and_what_was_done_may_not() {
        assert_eq!(gone_over(&["a", "b", "c"], 1, &["a", "b", "c"]), ["skip", "take", "take"]);
        assert_eq!(gone_over(&["a", "b", "c"], 1, &["a", "b", "x", "y"]), ["skip", "take", "take", "take"]);
        assert_eq!(gone_over(&["a", "b", "c"], 1, &["b", "a", "c"])[..2], ["skip", "other"]);
        assert_eq!(gone_over(&["a", "b", "c"], 1, &["new", "a", "b"])[..2], ["skip", "other"]);
        assert_eq!(gone_over(&["a", "b", "c"], 1, &["a", "c"]), ["skip", "other"]);
        assert_eq!(gone_over(&["ab", "c"], 1, &["a", "bc"]), ["skip", "other"]);
        assert_eq!(gone_over(&["a", "b"], 1, &["a"]), ["skip"], "the code behind the loop parks it");
    }

    #[test]
    fn items_do_not_run_together() {
        let second = |texts: [&str; 2]| {
            let mut cursor = LoopCursor::new(None, &texts.iter());
            cursor.come_to(0, Some(texts[0].to_owned()));
            cursor.come_to(1, Some(texts[1].to_owned()))
        };
        assert_ne!(second(["12", "3"]), second(["1", "23"]), "a number does not say where it ends");
    }

    #[test]
    fn items_without_a_text_are_known_by_how_many_there_are() {
        let stands = |of: usize| {
            let items = vec![(); of];
            let mut cursor = LoopCursor::new(None, &items.iter());
            cursor.come_to(0, None);
            let LoopItem::Current(position) = cursor.come_to(1, None) else { panic!("it does not begin") };
            position
        };
        let again = |of: usize| {
            let items = vec![(); of];
            let mut cursor = LoopCursor::new(Some(stands(3)), &items.iter());
            cursor.come_to(0, None);
            cursor.come_to(1, None)
        };
        assert_eq!(again(3), LoopItem::Current(stands(3)));
        assert_eq!(again(4), LoopItem::Changed);
    }
}

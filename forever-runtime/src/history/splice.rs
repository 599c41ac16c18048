//! What one text has in place of a piece of another one.
//!
//! The text of a long value seldom changes as a whole: a list gets one more item, a page one more
//! line. What lies between the beginning and the end that two texts share says the same as the
//! whole new text.

/// The least that the two have to share.
const LEAST: usize = 64;

/// How a text is made from an earlier one: its first `head` bytes, `middle`, its last `tail` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Splice<T> {
    pub(super) head: usize,
    pub(super) tail: usize,
    pub(super) middle: T,
}

impl<'a> Splice<&'a str> {
    /// How `new` is made from `old`, if they share at least half of `new`.
    pub(super) fn between(old: &str, new: &'a str) -> Option<Self> {
        let most = old.len().min(new.len());
        if most < LEAST {
            return None;
        }
        let mut head = same(old.as_bytes(), new.as_bytes());
        while !new.is_char_boundary(head) {
            head -= 1;
        }
        // What is shared at the beginning is not counted again at the end.
        let mut tail = same_from_the_end(&old.as_bytes()[old.len() - (most - head)..], &new.as_bytes()[new.len() - (most - head)..]);
        while !new.is_char_boundary(new.len() - tail) {
            tail -= 1;
        }
        let shared = head + tail;
        if shared < LEAST || 2 * shared < new.len() {
            return None;
        }
        Some(Splice { head, tail, middle: new.get(head..new.len() - tail)? })
    }
}

impl<T: AsRef<str>> Splice<T> {
    /// The new text; `None` if it is not made from this one.
    pub(super) fn apply(&self, old: &str) -> Option<String> {
        let end = old.len().checked_sub(self.tail).filter(|end| self.head <= *end)?;
        Some([old.get(..self.head)?, self.middle.as_ref(), old.get(end..)?].concat())
    }
}

/// Bytes compared at once.
const BLOCK: usize = 64;

/// Length of the common beginning.
fn same(one: &[u8], other: &[u8]) -> usize {
    let blocks = one.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK)).take_while(|(one, other)| one == other).count() * BLOCK;
    blocks + one[blocks..].iter().zip(&other[blocks..]).take_while(|(one, other)| one == other).count()
}

/// Length of the common end.
fn same_from_the_end(one: &[u8], other: &[u8]) -> usize {
    let blocks = one.rchunks_exact(BLOCK).zip(other.rchunks_exact(BLOCK)).take_while(|(one, other)| one == other).count() * BLOCK;
    let rest = |all: &[u8]| all.len() - blocks;
    blocks + one[..rest(one)].iter().rev().zip(other[..rest(other)].iter().rev()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::dice::Dice;

    fn below(dice: &mut Dice, limit: usize) -> usize {
        usize::try_from(dice.below(limit as u64)).unwrap()
    }

    fn text(dice: &mut Dice, letters: usize) -> String {
        (0..letters).map(|_| ['a', 'b', 'é', 'è', '漢', '字', '🦀', '🦁'][below(dice, 8)]).collect()
    }

    /// A char boundary of `text`.
    fn place(dice: &mut Dice, text: &str) -> usize {
        let at = below(dice, text.len() + 1);
        (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap()
    }

    #[test]
    fn what_is_applied_to_the_old_text_is_the_new_text() {
        let mut dice = Dice::new(7);
        let mut spliced = 0;
        for _ in 0..20_000 {
            let letters = below(&mut dice, 120);
            let old = text(&mut dice, letters);
            let (from, to) = (place(&mut dice, &old), place(&mut dice, &old));
            let letters = below(&mut dice, 30);
            let middle = text(&mut dice, letters);
            // Also such as have a piece twice: what is shared overlaps there.
            let new = [old.split_at(from).0, &middle, old.split_at(to).1].concat();
            let Some(splice) = Splice::between(&old, &new) else {
                let shared = (from + (old.len() - to)).min(old.len()).min(new.len());
                assert!(shared < LEAST.max(new.len().div_ceil(2)), "{old} {new}");
                continue;
            };
            assert_eq!(splice.apply(&old).as_ref(), Some(&new), "{old} {new}");
            assert!(splice.middle.len() <= new.len() / 2);
            spliced += 1;
        }
        assert!(spliced > 5_000, "{spliced}");
    }

    #[test]
    fn of_a_long_text_that_grows_only_what_is_new_is_kept() {
        let old = format!("\"{}\"", "one more line\\n".repeat(10_000));
        let new = format!("{}and another\"", old.strip_suffix('"').unwrap());
        assert_eq!(Splice::between(&old, &new), Some(Splice { head: old.len() - 1, tail: 1, middle: "and another" }));
        assert_eq!(Splice::between(&new, &old), Some(Splice { head: old.len() - 1, tail: 1, middle: "" }));
        assert_eq!(Splice::between(&old, &old), Some(Splice { head: old.len(), tail: 0, middle: "" }));
    }

    #[test]
    fn one_that_does_not_fit_a_text_makes_none() {
        let old = "aé漢z";
        for (head, tail) in [(9, 0), (0, 9), (4, 4), (2, 0), (0, 3), (usize::MAX, 1), (1, usize::MAX)] {
            assert_eq!(Splice { head, tail, middle: "x" }.apply(old), None, "{head} {tail}");
        }
        assert_eq!(Splice { head: 3, tail: 1, middle: "x" }.apply(old).as_deref(), Some("aéxz"));
    }
}

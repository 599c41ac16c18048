//! Edits of the arms of a `select!`. The one that comes about stays.
use forever_testkit::prng::Prng;

use super::edit::{Edit, some};
use super::generate;
use super::places;
use super::program::{Kind, On, Program};

pub(super) fn change(edit: Edit, program: &mut Program, prng: &mut Prng) -> Option<()> {
    let id = some(prng, &places::all(&program.work, |kind| matches!(kind, Kind::Select { .. })))?;
    let added = generate::arm(program, prng);
    let Kind::Select { arms, wins, .. } = &mut places::node(&mut program.work, id).kind else { return None };
    match edit {
        Edit::ArmsExchanged => {
            let by = 1 + prng.below(arms.len() - 1);
            arms.rotate_left(by);
        }
        Edit::ArmAdded => {
            let at = prng.below(arms.len() + 1);
            arms.insert(at, added);
        }
        Edit::ArmRemoved => {
            let at = prng.below(arms.len());
            if arms.len() < 3 || arms[at].id == *wins {
                return None;
            }
            arms.remove(at);
        }
        Edit::ArmRenamed => {
            let at = prng.below(arms.len());
            let On::Topic(topic) = &mut arms[at].on else { return None };
            topic.push('x');
        }
        _ => return None,
    }
    Some(())
}

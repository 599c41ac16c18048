//! Effects in the snapshot row of their fiber, and settled ones several in a row; and what a turn runs, in the fiber of the turn.
use forever::Builder;
use forever::prelude::*;

use crate::desk::Desk;

pub(crate) const HOLDS: &[(u32, &str)] = &[(1, "before paying"), (2, "pay last")];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (2, "SELECT ops LIKE '%\"pay last\",\"started\"%' FROM snapshots JOIN fibers ON fiber = seq WHERE id = 'payer'"),
    (2, "SELECT count(*) > 0 FROM settled_ops"),
    (2, "SELECT count(*) = 9 FROM op_ledger WHERE step = 'pay fee' AND state = 'completed'"),
    (2, "SELECT count(*) = 0 FROM fibers WHERE name = 'forever.agent_loop'"),
    (
        2,
        "SELECT count(*) = 2 FROM snapshots JOIN fibers ON fiber = seq
         WHERE name = 'forever.turn' AND state = 'running' AND data ->> '$.call.fiber' = 'forever.agent_loop'",
    ),
    (2, "SELECT count(*) = 1 FROM op_ledger AS ops JOIN turns USING (fiber) WHERE turns.id = 'digs' AND ops.state = 'started'"),
];

#[fiber]
pub(crate) async fn payer(desk: Res<Desk>) -> anyhow::Result<usize> {
    let mut paid = step!("before", desk.work("before paying").await?);
    for n in 0..9_usize {
        let receipt = step!("pay fee", effect, key = n, "r".repeat(300));
        paid += receipt.len();
    }
    let last = step!("pay last", effect, on_unknown = OnUnknown::Retry, desk.work("pay last").await?);
    Ok(paid + last)
}

pub(crate) fn registered(builder: Builder) -> Builder {
    builder.fiber::<payer>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(payer()).id("payer").await?;
    Ok(())
}

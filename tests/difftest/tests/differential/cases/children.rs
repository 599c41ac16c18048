//! The fixed fibers that generated bodies call inline, each beside its plain rendering.
use super::*;

pub(crate) async fn plain_total(io: &Io, n: u32) -> Result<u32, String> {
    let mut total = n;
    for round in 0..1 + n % 3 {
        let more = io.pick(9001, &[round, n]).await?;
        io.note(format!("total {total} {more}"));
        total = plus(total, more);
    }
    Ok(total)
}

pub(crate) async fn plain_describe(io: &Io, item: Item) -> Result<String, String> {
    let text = io.text(9002, &[item.id]).await?;
    Ok(format!("{}: {text} {:?}", item.id, item.tags))
}

pub(crate) async fn plain_nested(io: &Io, n: u32) -> Result<Vec<u32>, String> {
    let first = io.pick(9003, &[n]).await?;
    let total = plain_total(io, first).await?;
    Ok(vec![first, total, n])
}

#[cfg(not(difftest_plain))]
mod fibers {
    use super::*;

    #[fiber]
    pub(crate) async fn total(io: Res<Io>, n: u32) -> Result<u32, String> {
        let mut total = n;
        for round in 0..1 + n % 3 {
            let more = step!(io.pick(9001, &[round, n]).await?);
            io.note(format!("total {total} {more}"));
            total = plus(total, more);
        }
        Ok(total)
    }

    #[fiber]
    pub(crate) async fn describe(io: Res<Io>, item: Item) -> Result<String, String> {
        let text = step!(io.text(9002, &[item.id]).await?);
        Ok(format!("{}: {text} {:?}", item.id, item.tags))
    }

    #[fiber]
    pub(crate) async fn nested(io: Res<Io>, n: u32) -> Result<Vec<u32>, String> {
        let first = step!(io.pick(9003, &[n]).await?);
        let total = call!(total(first))?;
        Ok(vec![first, total, n])
    }
}
#[cfg(not(difftest_plain))]
pub(crate) use fibers::*;

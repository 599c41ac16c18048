use forever::prelude::*;

struct Item {
    cents: u32,
}

#[fiber]
async fn assigned(bank: Res<Bank>, cents: Vec<u32>) -> anyhow::Result<u32> {
    let (mut total, mut last, mut pair) = (0, 0, [0, 0]);
    let item = Item { cents: 1 };
    for cents in cents {
        step!("compound", effect, |op| { total += item.cents; bank.charge(op.id(), cents).await? });
        step!("tuple", effect, { (last, _) = (cents, 1); bank.charge("", cents).await? });
        step!("array", effect, { [_, pair[0]] = [1, 2]; bank.charge("", cents).await? });
        step!("borrowed", effect, { add(&mut total, cents); bank.charge("", cents).await? });
        step!("closure", effect, { [1, 2].iter().for_each(|n| total += n); bank.charge("", cents).await? });
    }
    Ok(total + last + pair[0])
}

fn add(total: &mut u32, cents: u32) {
    *total += cents;
}

#[fiber]
async fn through_a_method(bank: Res<Bank>, cents: u32) -> anyhow::Result<Vec<u32>> {
    let mut sent = vec![];
    step!("charge", effect, { sent.push(cents); bank.charge("", cents).await? });
    Ok(sent)
}

#[fiber]
async fn in_a_macro(bank: Res<Bank>, cents: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    step!("charge", effect, { assert!({ total += cents; total > 0 }); bank.charge("", cents).await? });
    Ok(total)
}

#[fiber]
async fn through_a_reference(bank: Res<Bank>, cents: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    let mut left = cents;
    let last = left.last_mut().unwrap();
    step!("charge", effect, { add(last, 1); bank.charge("", 1).await? });
    Ok(left)
}

#[fiber]
async fn by_a_closure_made_before(bank: Res<Bank>, cents: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    let mut count = || total += cents;
    step!("charge", effect, { count(); bank.charge("", cents).await? });
    Ok(total)
}

#[fiber]
async fn through_a_borrow(bank: Res<Bank>, mut cents: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    let list = &mut cents;
    list.push(1);
    step!("charge", effect, { list.push(2); bank.charge("", 1).await? });
    list.push(3);
    Ok(cents)
}

struct Bank;

impl Bank {
    async fn charge(&self, key: &str, cents: u32) -> anyhow::Result<()> {
        anyhow::bail!("{key} {cents}")
    }
}

fn main() {}

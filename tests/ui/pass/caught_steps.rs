#![deny(warnings)]
// Errors as values, and branches with the options of a step, under every kind of error type.
use std::time::Duration;

use forever::prelude::*;

#[derive(Debug)]
pub enum Trouble {
    Declined(u32),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Trouble {}

#[fiber]
pub async fn own(bank: Res<Bank>, n: u32) -> Result<u32, Trouble> {
    let a = step!("a", retry = Retry::times(2), timeout = Duration::from_secs(1), catch, bank.own(n).await?);
    let b = match step!("b", effect, catch, |op| bank.own(op.attempt()).await?) { Ok(n) => n, Err(e) => e.attempts() };
    let _ = step!("c", catch, effect, timeout = Duration::from_secs(1), retry = Retry::times(1), bank.own(1).await?);
    while let Err(e) = step!("d", catch, bank.own(a.clone().unwrap_or(1)).await?) { if e.is_timeout() { break } }
    Ok(a.unwrap_or(0) + b)
}

#[fiber]
pub async fn boxed(bank: Res<Bank>, n: u32) -> Result<u32, forever::BoxError> {
    let retry = Retry::times(2);
    let (a, b) = steps!(step!("a", retry = retry, catch, bank.own(n).await?), step!(effect, key = n, |op| bank.own(op.attempt()).await?));
    let c = steps!(for n in 0..3, limit = 2, retry = Retry::times(1), effect, key = n, catch, |op| bank.own(n + op.attempt()).await?);
    let d = step!("e", catch, bank.own(1).await?)?;
    let e = steps!(for n in [1, 2], timeout = Duration::from_secs(2), bank.own(n).await?);
    Ok(a? + b + c.len() as u32 + d + e[0])
}

pub struct Bank;

impl Bank {
    pub async fn own(&self, n: u32) -> Result<u32, Trouble> {
        if n == 0 { Err(Trouble::Declined(1)) } else { Ok(n) }
    }
}

pub(crate) fn main() {}

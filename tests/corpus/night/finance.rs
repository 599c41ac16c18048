//! Money: payments, invoices, reconciliation, compensation.
use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Cents(i64);

impl std::ops::Add for Cents {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Cents(self.0 + other.0)
    }
}

impl std::ops::AddAssign for Cents {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl std::iter::Sum for Cents {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Cents(0), |a, b| a + b)
    }
}

impl std::fmt::Display for Cents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    account: String,
    amount: Cents,
    memo: Option<String>,
}

fn line(account: &str, amount: i64) -> Line {
    Line { account: account.to_owned(), amount: Cents(amount), memo: (amount < 0).then(|| "refund".into()) }
}

twin! {
    async fn book_a_trip_with_compensation(io, trip: String, fail_at: u32) -> anyhow::Result<String> {
        let mut undo: Vec<(&str, u32)> = Vec::new();
        let booked: anyhow::Result<u32> = 'book: {
            let mut total = 0;
            for (n, part) in ["flight", "hotel", "car"].into_iter().enumerate() {
                let price = match step!("book", catch, if n as u32 == fail_at { io.fails(part).await? } else { io.did(format!("book {part}"), 100 + n as u32).await? }) {
                    Ok(price) => price,
                    Err(error) => break 'book Err(anyhow!("{part}: {error}")),
                };
                undo.push((part, price));
                total += price;
            }
            Ok(total)
        };
        match booked {
            Ok(total) => Ok(format!("{trip} for {total}")),
            Err(error) => {
                let reason = format!("{error:#}");
                while let Some((part, price)) = undo.pop() {
                    step!("cancel", io.did(format!("cancel {part} ({price})"), ()).await?);
                }
                Err(anyhow!(reason).context(trip))
            }
        }
    }
}

twin! {
    async fn pay_invoices_in_due_order(io, mut_invoices: Vec<(u32, Cents)>, balance: Cents) -> anyhow::Result<(Cents, Vec<u32>)> {
        let mut invoices = mut_invoices;
        invoices.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.cmp(&a.1)));
        let mut left = balance;
        let mut late = vec![];
        for (due, amount) in invoices {
            if amount > left {
                late.push(due);
                continue;
            }
            let paid = step!("pay", effect, key = (due, amount), on_unknown = OnUnknown::Retry, io.did(format!("pay {amount} due {due}"), amount).await?);
            left = Cents(left.0 - paid.0);
        }
        if !late.is_empty() {
            step!("notify", io.did(format!("{} are late", late.len()), ()).await?);
        }
        Ok((left, late))
    }
}

twin! {
    async fn reconcile_statements(io, bank: Vec<Line>, books: Vec<Line>) -> anyhow::Result<String> {
        let mut open: BTreeMap<(String, Cents), u32> = BTreeMap::new();
        for l in &books {
            *open.entry((l.account.clone(), l.amount)).or_insert(0) += 1;
        }
        let mut unknown = Vec::new();
        for l in bank {
            let key = (l.account, l.amount);
            match open.get_mut(&key) {
                Some(n) if *n > 0 => *n -= 1,
                _ => {
                    let guess = step!("classify", io.did(format!("classify {}", key.1), l.memo.as_deref().unwrap_or("fee").to_owned()).await?);
                    unknown.push((key.0, guess));
                }
            }
        }
        open.retain(|_, n| *n > 0);
        let missing: Cents = open.iter().map(|((_, amount), n)| Cents(amount.0 * i64::from(*n))).sum();
        step!("file", io.did(format!("missing {missing}"), ()).await?);
        Ok(format!("{unknown:?} {missing} {:?}", open.into_keys().map(|(a, _)| a).collect::<Vec<_>>()))
    }
}

twin! {
    async fn subscription_billing(io, customer: String, months: u32) -> anyhow::Result<Vec<String>> {
        let mut history = Vec::new();
        let mut strikes = 0;
        for month in 1..=months {
            sleep!(Duration::from_secs(30 * 24 * 3600));
            let charged = step!("charge", retry = Retry::times(2).backoff(Backoff::none()), catch, |op| {
                io.log(format!("charge {customer} {month}/{}", op.attempt()));
                ensure!(month % 3 != 0 || op.attempt() > 3, "declined");
                u64::from(month) * 100
            });
            match charged {
                Ok(cents) => {
                    strikes = 0;
                    history.push(format!("{month}: {cents}"));
                }
                Err(error) => {
                    strikes += 1;
                    history.push(format!("{month}: {error} after {}", error.attempts()));
                    step!("mail", io.did(format!("mail about {month}"), ()).await?);
                    if strikes > 1 || month == 6 {
                        history.push("cancelled".to_string());
                        break;
                    }
                }
            }
        }
        Ok(history)
    }
}

twin! {
    async fn split_a_bill(io, total: u32, people: Vec<String>) -> anyhow::Result<BTreeMap<String, u32>> {
        let n = u32::try_from(people.len())?;
        let (share, mut rest) = (total.checked_div(n).context("nobody pays")?, total % n.max(1));
        let mut paid = BTreeMap::new();
        for person in people {
            let extra = if rest > 0 { rest -= 1; 1 } else { 0 };
            let amount = step!("ask", io.did(format!("{person} owes {}", share + extra), share + extra).await?);
            if paid.insert(person.clone(), amount).is_some() {
                bail!("{person} pays twice");
            }
        }
        let sum: u32 = paid.values().sum();
        step!("check", io.did(format!("{sum} of {total}"), ()).await?);
        Ok(paid)
    }
}

twin! {
    async fn fraud_rules_in_order(io, payment: Line, limits: BTreeMap<String, i64>) -> anyhow::Result<String> {
        let Line { account, amount: Cents(amount), memo } = payment;
        let limit = limits.get(&account).or_else(|| limits.get("*")).copied();
        let verdict = match (limit, memo) {
            (None, _) => "no limit known",
            (Some(limit), _) if amount > limit => {
                let score = step!("score", io.did(format!("score {account}"), (amount - limit) as f32 / limit as f32).await?);
                if score > 1.0 { "block" } else { "review" }
            }
            (Some(_), Some(memo)) if memo.eq_ignore_ascii_case("REFUND") => {
                step!("look", io.did("look at the refund", ()).await?);
                "refund"
            }
            (Some(0), None) => "zero",
            (Some(_), _) => "pass",
        };
        step!("log", io.did(format!("{account}: {verdict}"), ()).await?);
        Ok(verdict.to_owned())
    }
}

twin! {
    async fn portfolio_rebalancing(io, holdings: Vec<(String, f64)>, target: Vec<(String, f64)>) -> anyhow::Result<Vec<(String, f64)>> {
        let mut prices = Vec::with_capacity(holdings.len());
        for (symbol, _) in &holdings {
            prices.push(step!("price", io.did(format!("price {symbol}"), symbol.len() as f64 + 0.25).await?));
        }
        let worth: f64 = holdings.iter().zip(&prices).map(|((_, n), price)| n * price).sum();
        let mut orders: Vec<(String, f64)> = holdings
            .iter()
            .zip(&prices)
            .filter_map(|((symbol, n), price)| {
                let (_, share) = target.iter().find(|(t, _)| t == symbol)?;
                let want = (worth * share / price).floor();
                ((want - n).abs() >= 1.0).then(|| (symbol.clone(), want - n))
            })
            .collect();
        orders.sort_by(|a, b| a.1.total_cmp(&b.1));
        for (symbol, delta) in &orders {
            let side = if *delta < 0.0 { "sell" } else { "buy" };
            step!("order", effect, on_unknown = OnUnknown::Retry, io.did(format!("{side} {} {symbol}", delta.abs()), ()).await?);
        }
        Ok(orders)
    }
}

twin! {
    async fn currency_conversion_with_a_cache(io, amounts: Vec<(String, i64)>) -> anyhow::Result<i64> {
        let mut rates: BTreeMap<String, i64> = BTreeMap::from([("eur".to_string(), 100)]);
        let mut total = 0;
        for (currency, amount) in amounts {
            let rate = match rates.get(&currency) {
                Some(rate) => *rate,
                None => {
                    let rate = step!("rate", io.did(format!("rate of {currency}"), currency.bytes().map(i64::from).sum::<i64>() % 90 + 50).await?);
                    rates.insert(currency, rate);
                    rate
                }
            };
            total += amount * rate / 100;
        }
        step!("book", io.did(format!("book {total} at {rates:?}"), ()).await?);
        Ok(total)
    }
}

twin! {
    async fn expense_approval_chain(io, amount: u32, chain: Vec<(String, u32)>) -> anyhow::Result<String> {
        let mut signatures: Vec<String> = Vec::new();
        let needed = chain.iter().position(|(_, limit)| *limit >= amount).map_or(chain.len(), |i| i + 1);
        for (who, limit) in chain.into_iter().take(needed) {
            step!("ask", io.did(format!("ask {who} for {amount}"), ()).await?);
            let decision: (bool, String) = recv!(format!("decision of {who}"));
            let (true, reason) = decision else {
                return Ok(format!("refused by {who}: {}", decision.1));
            };
            signatures.push(format!("{who}/{limit}: {reason}"));
        }
        let reference = step!("transfer", effect, |op| io.did(format!("transfer {amount}"), format!("ref{}", op.attempt())).await?);
        Ok(format!("{reference} {signatures:?}"))
    }
}

twin! {
    async fn monthly_close(io, entries: Vec<Line>) -> anyhow::Result<String> {
        let balances = entries.iter().fold(BTreeMap::new(), |mut all: BTreeMap<&str, Cents>, entry| {
            *all.entry(entry.account.as_str()).or_insert(Cents(0)) += entry.amount;
            all
        });
        let report: Vec<String> = balances.iter().map(|(account, sum)| format!("{account:<6}{sum:>8}")).collect();
        let off = balances.values().copied().sum::<Cents>();
        if off != Cents(0) {
            let reason = step!("investigate", io.did(format!("off by {off}"), "rounding".to_string()).await?);
            ensure!(off.0.abs() < 5, "off by {off}: {reason}");
        }
        step!("close", io.did(format!("close {} accounts", report.len()), ()).await?);
        Ok(report.join("\n"))
    }
}

corpus! {
    book_a_trip_with_compensation => completes(|| book_a_trip_with_compensation("rome".into(), 9)), fails("rome", || book_a_trip_with_compensation("rome".into(), 2));
    pay_invoices_in_due_order => completes(|| pay_invoices_in_due_order(vec![(3, Cents(50)), (1, Cents(70)), (2, Cents(40))], Cents(130)));
    reconcile_statements => completes(|| reconcile_statements(vec![line("a", 5), line("a", 5), line("b", -3)], vec![line("a", 5), line("c", 700), line("c", 700)]));
    subscription_billing => completes(|| subscription_billing("ada".into(), 4)), completes(|| subscription_billing("bob".into(), 9));
    split_a_bill => completes(|| split_a_bill(100, vec!["a".into(), "b".into(), "c".into()])), fails("pays twice", || split_a_bill(100, vec!["a".into(), "a".into()]));
    fraud_rules_in_order => completes(|| fraud_rules_in_order(line("a", 500), [("a".into(), 300)].into())), completes(|| fraud_rules_in_order(line("b", -5), [("*".into(), 9)].into()));
    portfolio_rebalancing => completes(|| portfolio_rebalancing(vec![("aa".into(), 10.0), ("b".into(), 40.0)], vec![("aa".into(), 0.5), ("b".into(), 0.5)]));
    currency_conversion_with_a_cache => completes(|| currency_conversion_with_a_cache(vec![("usd".into(), 50), ("eur".into(), 5), ("usd".into(), 7), ("sek".into(), 900)]));
    expense_approval_chain => completes_with(Letters::default().with("decision of lead", (true, "ok")).with("decision of cfo", (true, "fine")), || expense_approval_chain(500, vec![("lead".into(), 100), ("cfo".into(), 1000), ("ceo".into(), 9999)])),
        completes_with(Letters::default().with("decision of lead", (false, "no")), || expense_approval_chain(50, vec![("lead".into(), 100), ("cfo".into(), 1000)]));
    monthly_close => completes(|| monthly_close(vec![line("a", 500), line("b", -498), line("a", 1)])), fails("off by 5.00: rounding", || monthly_close(vec![line("a", 500)]));
}

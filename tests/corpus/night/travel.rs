//! A travel desk: literal lists and constants, errors that are caught, branches side by side, waits in arms.
use std::borrow::Cow;

use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Leg {
    from: String,
    to: String,
    price: u32,
}

fn leg(from: &str, to: &str, price: u32) -> Leg {
    Leg { from: from.into(), to: to.into(), price }
}

#[derive(Clone, Copy)]
struct Carrier {
    name: &'static str,
    routes: &'static [(&'static str, u32)],
}

const CARRIERS: [Carrier; 3] = [
    Carrier { name: "rail", routes: &[("ulm", 3), ("bonn", 7)] },
    Carrier { name: "bus", routes: &[] },
    Carrier { name: "air", routes: &[("rome", 30)] },
];
static CLASSES: &[&str] = &["first", "second"];
const CURRENCY: &str = "EUR";
const LIMITS: (u32, &str) = (9, "cap");

fn season(month: u32) -> &'static str {
    match month {
        12 | 1 | 2 => "winter",
        6..=8 => "summer",
        _ => "other",
    }
}

async fn fare(io: &Io, what: &str, n: u32) -> anyhow::Result<u32> {
    io.log(format!("fare {what}"));
    if n > 20 { Err(anyhow!("{what} is too dear").context(format!("at {n}"))) } else { Ok(n * 2) }
}

// Literals and constants.

twin! {
    async fn carriers_from_a_constant(io, month: u32) -> anyhow::Result<Vec<String>> {
        let mut out = vec![];
        let when = season(month);
        for Carrier { name, routes } in CARRIERS {
            let label = if routes.is_empty() { "no routes" } else { CURRENCY };
            for (city, price) in routes {
                let fare = step!("fare", io.did(format!("{name} {city} {when}"), price * 2).await?);
                out.push(format!("{name}-{city} {fare} {label}"));
            }
            if step!("more", io.did(format!("{name} {label}"), name.len()).await?) > 3 { continue }
            out.push(name.to_owned());
        }
        for (class, (factor, tag)) in CLASSES.iter().zip([(2u32, "a"), (1, "b")]) {
            step!("class", io.did(format!("{class} {factor} {tag}"), ()).await?);
            out.push(format!("{class}{factor}{tag}{}", LIMITS.1));
        }
        Ok(out)
    }
}

twin! {
    async fn literals_in_every_shape(io, n: usize) -> anyhow::Result<String> {
        let mut said = String::new();
        let mut mood = "calm";
        let pairs = [("law", 1u8), ("sales", 2)];
        let (greeting, times) = ("hello", 2);
        let nested = [["a", "b"], ["c", "d"]];
        for (topic, weight) in pairs {
            for word in nested[usize::from(weight) % 2] {
                said.push_str(&step!("word", io.did(format!("{topic} {word} {mood}"), format!("{word}{times}")).await?));
                mood = if said.len() > 5 { "busy" } else { "ready" };
            }
        }
        for c in ['x', 'y'] { said.push(step!("char", io.did(c.to_string(), c).await?)); }
        for text in ["p", "q"].iter().skip(n.min(1)) { step!("text", io.did(format!("{text} {greeting}"), ()).await?); said += text; }
        for (i, b) in b"ok".iter().enumerate() { said.push_str(&step!("byte", io.did(format!("{i}{b}"), u32::from(*b)).await?).to_string()); }
        let sep = if n > 1 { ", " } else { "; " };
        for part in "one two".split(' ').rev() { said = [said.as_str(), part].join(sep); step!("part", io.did(part, ()).await?); }
        Ok(format!("{said} {mood} {greeting}"))
    }
}

twin! {
    async fn a_table_of_rules(io, legs: Vec<Leg>) -> anyhow::Result<Vec<String>> {
        let rules: &[(&str, u32, &str)] = &[("long", 50, "ask"), ("dear", 10, "warn"), ("fine", 0, "book")];
        let mut out = vec![];
        for Leg { from, to, price } in &legs {
            let (name, _, action) = rules.iter().find(|(_, least, _)| price >= least).copied().unwrap_or(rules[2]);
            match action {
                "ask" => { step!("ask", io.did(format!("ask {from}-{to}"), ()).await?); out.push(format!("{name}?")) }
                "warn" if from == "ulm" => out.push(step!("warn", io.did(format!("warn {to}"), "warned".to_owned()).await?)),
                _ => { let id = step!("book", io.did(format!("book {from}-{to} {price}"), price + 1).await?); out.push(id.to_string()) }
            }
        }
        Ok(out)
    }
}

// Errors.

twin! {
    async fn fares_that_may_be_too_dear(io, cities: Vec<(String, u32)>) -> anyhow::Result<Vec<String>> {
        let mut out = vec![];
        let mut cheapest: Option<(u32, &'static str)> = None;
        for (city, price) in &cities {
            let asked = step!("fare", catch, fare(&io, city, *price).await?);
            let line = match &asked {
                Ok(fare) if *fare < 10 => { cheapest = Some((*fare, "cheap")); format!("{city} {fare}") }
                Ok(fare) => step!("haggle", io.did(format!("haggle {city}"), format!("{city} {}", fare - 1)).await?),
                Err(error) => format!("{city}: {error} ({})", error.causes().count()),
            };
            out.push(line);
            if let Err(error) = asked {
                step!("note", io.did(format!("{error} after {}", error.attempts()), ()).await?);
            }
            if let Some((fare, word)) = cheapest { out.push(format!("{word} {fare}")) }
        }
        let all: Result<Vec<u32>, String> = cities.iter().map(|(c, n)| n.checked_sub(1).ok_or_else(|| c.clone())).collect();
        step!("all", io.did(format!("{all:?}"), ()).await?);
        out.push(match all { Ok(all) => all.len().to_string(), Err(city) => city });
        Ok(out)
    }
}

twin! {
    async fn retries_that_run_out(io, n: u32) -> anyhow::Result<String> {
        let first = step!("first", retry = Retry::times(2).backoff(Backoff::none()), |op| {
            io.log(format!("attempt {}", op.attempt()));
            if op.attempt() <= n { bail!("busy") }
            op.attempt()
        });
        let second = step!("second", catch, retry = Retry::times(1).backoff(Backoff::none()), fare(&io, "rome", first + 20).await?);
        let word = match second { Ok(n) => n.to_string(), Err(error) => { step!("told", io.did(error.to_string(), ()).await?); error.to_string() } };
        Ok(format!("{first} {word}"))
    }
}

// Side by side, and waits.

twin! {
    async fn quotes_side_by_side(io, cities: Vec<String>, budget: u32) -> anyhow::Result<String> {
        let (rail, air, hotel) = steps!(
            now(&io, "rail", 3u32).await?,
            now(&io, "air", cities.len() as u32).await?,
            now(&io, "hotel", cities.first().cloned()).await?,
        );
        let prices = steps!(for city in &cities, limit = 2, now(&io, format!("price {city}"), city.len() as u32 + rail).await?);
        let mut left = budget;
        let mut booked = vec![];
        for (city, price) in cities.iter().zip(&prices) {
            if *price > left { continue }
            left -= price;
            booked.push(step!("book", io.did(format!("book {city} {left}"), city.clone()).await?));
        }
        let hotel = hotel.filter(|name| booked.contains(name)).map_or(Cow::Borrowed("none"), |name| Cow::Owned(name + "!"));
        let hotel = hotel.into_owned();
        step!("hotel", io.did(hotel.as_str(), ()).await?);
        Ok(format!("{booked:?} {left} {air} {hotel}"))
    }
}

twin! {
    async fn answers_while_the_desk_is_open(io, limit: u32) -> anyhow::Result<Vec<String>> {
        let mut out = vec![];
        let mut open = true;
        while open && out.len() < 4 {
            let line = select! {
                price: u32 = recv!("price") => {
                    if price > limit { step!("dear", io.did(format!("dear {price}"), ()).await?); continue }
                    format!("price {price}")
                }
                name: String = recv!("name") => step!("name", io.did(format!("name {name}"), name.to_uppercase()).await?),
                _ = sleep!(SHORT) => { open = false; "closed".to_owned() }
            };
            out.push(line);
        }
        let last: Option<String> = recv!("last", timeout = SHORT);
        let last = last.as_deref().unwrap_or("nothing").to_owned();
        step!("last", io.did(last.as_str(), ()).await?);
        out.push(last);
        Ok(out)
    }
}

twin! {
    async fn cheapest(io, legs: Vec<Leg>) -> anyhow::Result<Leg> {
        let mut best: Option<Leg> = None;
        for leg in legs {
            let price = step!("price", io.did(format!("{}-{}", leg.from, leg.to), leg.price).await?);
            if best.as_ref().is_none_or(|b| b.price > price) { best = Some(Leg { price, ..leg }) }
        }
        best.context("no legs")
    }
}

twin! {
    async fn a_trip_of_called_legs(io, trips: Vec<Vec<Leg>>) -> anyhow::Result<String> {
        let mut route = String::new();
        let mut errors = 0;
        for (day, legs) in trips.into_iter().enumerate() {
            let Leg { to, price, .. } = match call!(cheapest(legs)) {
                Ok(leg) if leg.price > 8 => { let leg = call!(cheapest(vec![leg.clone(), Leg { price: 8, ..leg }]))?; step!("less", io.did("less", leg).await?) }
                Ok(leg) => leg,
                Err(error) => { errors += 1; step!("error", io.did(format!("day {day}: {error}"), ()).await?); continue }
            };
            let back = call!(cheapest(vec![leg(&to, "home", price)]))?;
            route += &format!("{to} {price} {};", back.price);
        }
        Ok(format!("{route}{errors}"))
    }
}

// Conditions in chains, with steps between.

twin! {
    async fn a_seat_by_conditions_in_chains(io, seats: Vec<Option<u32>>, wish: Option<String>) -> anyhow::Result<String> {
        let mut tried = 0;
        for seat in &seats {
            tried += 1;
            if let Some(n) = seat && *n > 1 && let asked = step!("ask", io.did(format!("seat {n}"), *n % 4).await?) && asked > 0 && let Some(wish) = &wish {
                step!("wish", io.did(format!("{wish} {asked}"), ()).await?);
                return Ok(format!("{n} {wish} {tried}"));
            } else if seat.is_none() && step!("none", io.did("none", tried > 1).await?) {
                break;
            }
        }
        let mut rest = seats.into_iter().flatten().collect::<Vec<_>>();
        while let Some(n) = rest.pop() && step!("rest", io.did(format!("rest {n}"), n).await?) > 1 {
            tried += 1;
        }
        Ok(match (wish, tried) {
            (Some(wish), n @ 2..) => {
                let most = step!("limit", io.did("limit", 9).await?);
                format!("{wish}{}", n.min(most))
            }
            (_, n) => n.to_string(),
        })
    }
}

corpus! {
    carriers_from_a_constant => completes(|| carriers_from_a_constant(7));
    literals_in_every_shape => completes(|| literals_in_every_shape(1)), completes(|| literals_in_every_shape(2));
    a_table_of_rules => completes(|| a_table_of_rules(vec![leg("ulm", "rome", 60), leg("ulm", "bonn", 20), leg("bonn", "ulm", 12), leg("a", "b", 1)]));
    fares_that_may_be_too_dear => completes(|| fares_that_may_be_too_dear(vec![("ulm".into(), 4), ("rome".into(), 25), ("bonn".into(), 9)])), completes(|| fares_that_may_be_too_dear(vec![("free".into(), 0), ("ulm".into(), 30)]));
    retries_that_run_out => completes(|| retries_that_run_out(0)), completes(|| retries_that_run_out(2)), fails("busy", || retries_that_run_out(4));
    quotes_side_by_side => completes(|| quotes_side_by_side(["ulm", "rome", "bonn"].map(String::from).into(), 15));
    answers_while_the_desk_is_open => completes_with(Letters::default().with("price", 4).with("price", 90).with("name", "ann").with("last", "bye"), || answers_while_the_desk_is_open(9)),
        completes_with(Letters::default().with("price", 1), || answers_while_the_desk_is_open(9));
    cheapest => completes(|| cheapest(vec![leg("a", "b", 5), leg("a", "c", 3)])), fails("no legs", || cheapest(vec![]));
    a_trip_of_called_legs => completes(|| a_trip_of_called_legs(vec![vec![leg("a", "b", 5), leg("a", "c", 3)], vec![], vec![leg("c", "d", 12)]]));
    a_seat_by_conditions_in_chains => completes(|| a_seat_by_conditions_in_chains(vec![Some(1), Some(4), Some(6), None], Some("aisle".into()))), completes(|| a_seat_by_conditions_in_chains(vec![Some(4), None, None, Some(1)], None));
}

//! Orders, stock, shipments, travel.
use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Item<K> {
    sku: K,
    quantity: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Order {
    order_id: u64,
    items: Vec<Item<String>>,
    address: Address,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
struct Address {
    city: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    street: Option<(String, u16)>,
}

fn order(id: u64, items: &[(&str, u32)], city: &str) -> Order {
    let items = items.iter().map(|(sku, quantity)| Item { sku: sku.to_string(), quantity: *quantity }).collect();
    Order { order_id: id, items, address: Address { city: city.into(), street: (id % 2 == 0).then(|| ("Main".to_string(), 7)) } }
}

twin! {
    async fn fulfil_an_order(io, order: Order) -> anyhow::Result<String> {
        let Order { order_id, items, address: Address { city, street } } = order;
        let mut reserved = Vec::new();
        for Item { sku, quantity } in &items {
            let got = step!("reserve", io.did(format!("reserve {quantity} {sku}"), (*quantity).min(3)).await?);
            if got < *quantity {
                step!("back order", io.did(format!("back order {} {sku}", quantity - got), ()).await?);
            }
            reserved.push((sku.clone(), got));
        }
        let parcels = reserved.iter().map(|(_, n)| n.div_ceil(2)).sum::<u32>();
        let to = street.map_or_else(|| city.clone(), |(name, number)| format!("{name} {number}, {city}"));
        let label = step!("label", effect, key = order_id, on_unknown = OnUnknown::Retry, |op| io.did(format!("label for {to}"), format!("L{}-{}", order_id, op.attempt())).await?);
        Ok(format!("{label}: {parcels} to {to}"))
    }
}

twin! {
    async fn group_orders_into_vans(io, orders: Vec<Order>, capacity: u32) -> anyhow::Result<Vec<(String, Vec<u64>)>> {
        let mut by_city: BTreeMap<Address, Vec<Order>> = BTreeMap::new();
        for order in orders {
            let key = Address { street: None, ..order.address.clone() };
            by_city.entry(key).or_default().push(order);
        }
        let mut vans = Vec::new();
        for (Address { city, .. }, mut orders) in by_city {
            orders.sort_by_key(|o| std::cmp::Reverse(o.items.iter().map(|i| i.quantity).sum::<u32>()));
            let mut load = Vec::new();
            let mut room = capacity;
            while let Some(order) = orders.pop() {
                let size: u32 = order.items.iter().map(|i| i.quantity).sum();
                if size > room {
                    step!("send full", io.did(format!("van to {city} with {}", load.len()), ()).await?);
                    vans.push((city.clone(), std::mem::take(&mut load)));
                    room = capacity;
                }
                room = room.saturating_sub(size);
                load.push(order.order_id);
            }
            step!("send rest", io.did(format!("last van to {city}"), ()).await?);
            vans.push((city, load));
        }
        Ok(vans)
    }
}

twin! {
    async fn shortest_route(io, roads: BTreeMap<(u8, u8), u32>, from: u8, to: u8) -> anyhow::Result<Option<(u32, Vec<u8>)>> {
        let mut best: BTreeMap<u8, (u32, Option<u8>)> = BTreeMap::from([(from, (0, None))]);
        let mut open = BTreeSet::from([(0u32, from)]);
        while let Some((cost, here)) = open.pop_first() {
            if here == to {
                break;
            }
            for (next, length) in roads.range((here, 0)..=(here, u8::MAX)).map(|(&(_, next), &length)| (next, length)).collect::<Vec<_>>() {
                let delay = step!("traffic", io.did(format!("traffic {here}-{next}"), u32::from(here ^ next) % 3).await?);
                let total = cost + length + delay;
                if best.get(&next).is_none_or(|(known, _)| total < *known) {
                    best.insert(next, (total, Some(here)));
                    open.insert((total, next));
                }
            }
        }
        let Some(&(cost, _)) = best.get(&to) else { return Ok(None) };
        let mut route = vec![to];
        while let Some(Some(before)) = route.last().and_then(|at| best.get(at)).map(|(_, before)| *before) {
            route.push(before);
        }
        route.reverse();
        step!("announce", io.did(format!("{route:?}"), ()).await?);
        Ok(Some((cost, route)))
    }
}

twin! {
    async fn track_a_parcel(io, id: String) -> anyhow::Result<Vec<String>> {
        let mut events = Vec::new();
        let mut last_seen: Option<String> = None;
        let mut polls = 0;
        while last_seen.as_deref() != Some("delivered") {
            let status = step!("poll", io.did(format!("poll {id}"), ["posted", "posted", "sorted", "out", "delivered"][polls % 5].to_string()).await?);
            polls += 1;
            if last_seen.as_ref() == Some(&status) {
                sleep!(Duration::from_secs(3600));
                continue;
            }
            if let Some(before) = last_seen.replace(status.clone()) {
                step!("notify", io.did(format!("{id}: {before} -> {status}"), ()).await?);
            }
            events.push(status);
        }
        Ok(events)
    }
}

twin! {
    async fn inventory_with_negative_stock(io, mut_stock: BTreeMap<String, i32>, moves: Vec<(String, i32)>) -> anyhow::Result<BTreeMap<String, i32>> {
        let mut stock = mut_stock;
        for (sku, delta) in moves {
            let level = stock.entry(sku.clone()).or_default();
            *level += delta;
            let level = *level;
            if level < 0 {
                let bought: i32 = step!("buy", io.did(format!("buy {} {sku}", -level), -level + 5).await?);
                if let Some(level) = stock.get_mut(&sku) {
                    *level += bought;
                }
            } else if level == 0 {
                stock.remove(&sku);
                step!("delist", io.did(format!("delist {sku}"), ()).await?);
            }
        }
        Ok(stock)
    }
}

twin! {
    async fn itinerary_with_alternatives(io, legs: Vec<(String, String)>) -> anyhow::Result<Vec<String>> {
        let mut tickets = Vec::new();
        for (from, to) in legs.iter() {
            let ticket = 'leg: {
                for carrier in ["rail", "bus"] {
                    let seats = step!("seats", io.did(format!("{carrier} {from}-{to}"), (from.len() + to.len() + carrier.len()) % 3).await?);
                    if seats == 0 {
                        continue;
                    }
                    let price = step!("price", io.did(format!("price {carrier}"), seats * 10).await?);
                    break 'leg format!("{carrier} {from}-{to} {price}");
                }
                if from == to {
                    bail!("no way from {from} to itself");
                }
                format!("walk {from}-{to}")
            };
            tickets.push(ticket);
        }
        Ok(tickets)
    }
}

twin! {
    async fn auction_of_a_load(io, carriers: Vec<String>, reserve: u32) -> anyhow::Result<Option<(String, u32)>> {
        for carrier in &carriers {
            step!("invite", io.did(format!("invite {carrier}"), ()).await?);
        }
        let mut lowest: Option<(String, u32)> = None;
        loop {
            let bid: Option<(String, u32)> = select! {
                bid: (String, u32) = recv!("bid") => Some(bid),
                _ = sleep!(Duration::from_secs(60)) => None,
            };
            let Some((who, price)) = bid else { break };
            match &lowest {
                Some((leader, best)) if price >= *best => {
                    step!("reject", io.did(format!("{who}: {leader} has {best}"), ()).await?);
                }
                _ => lowest = Some((who, price)),
            }
        }
        let won = lowest.filter(|(_, price)| *price <= reserve);
        step!("close", io.did(format!("{won:?}"), ()).await?);
        Ok(won)
    }
}

twin! {
    async fn customs_form(io, goods: Vec<(String, f64)>) -> anyhow::Result<String> {
        let total = goods.iter().map(|&(_, value)| value).sum::<f64>();
        let mut form = String::from("CN23\n");
        for (index, &(ref name, value)) in goods.iter().enumerate() {
            let code = if value > total / 2.0 { step!("classify", io.did(format!("classify {name}"), name.len() as u32 * 1111).await?) } else { 9999 };
            form.push_str(&format!("{}. {name} {code:05} {value:.2}\n", index + 1));
        }
        let duty = match total {
            t if t < 22.0 => None,
            t if t.is_nan() => bail!("no value"),
            t => Some(step!("duty", io.did(format!("duty on {t:.1}"), t * 0.1).await?)),
        };
        if let Some(duty) = duty {
            form += &format!("duty {duty:.2}");
        }
        Ok(form)
    }
}

twin! {
    async fn returns_desk(io, returns: Vec<(u64, String)>) -> anyhow::Result<(u32, Vec<String>)> {
        let mut refunded = 0;
        let mut letters = Vec::new();
        for (id, reason) in returns {
            let decision = match reason.as_str() {
                "broken" | "wrong item" => Ok(100),
                "late" => Ok(step!("partial", io.did(format!("partial for {id}"), 30).await?)),
                other if other.starts_with("other:") => {
                    let text = other["other:".len()..].to_owned();
                    match step!("judge", catch, { ensure!(text.len() > 3, "{text} is no reason"); io.did(format!("judge {text}"), text.len() as u32).await? }) {
                        Ok(percent) => Ok(percent),
                        Err(error) => Err(error.to_string()),
                    }
                }
                other => Err(format!("unknown reason {other}")),
            };
            match decision {
                Ok(percent) => refunded += percent,
                Err(letter) => {
                    step!("letter", io.did(format!("letter to {id}"), ()).await?);
                    letters.push(letter);
                }
            }
        }
        Ok((refunded, letters))
    }
}

twin! {
    async fn cold_chain(io, readings: Vec<i8>) -> anyhow::Result<String> {
        let mut warm = 0u32;
        let mut worst = i8::MIN;
        for (minute, &reading) in readings.iter().enumerate() {
            worst = worst.max(reading);
            warm = if reading > 8 { warm + 1 } else { 0 };
            if warm == 2 {
                step!("warn", io.did(format!("warm since minute {}", minute - 1), ()).await?);
            } else if warm >= 4 {
                step!("discard", io.did(format!("discard at {worst}"), ()).await?);
                return Ok("spoiled".into());
            }
        }
        let grade = if worst > 8 { "doubtful" } else { "fresh" };
        step!("release", io.did(grade, ()).await?);
        Ok(grade.to_string())
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

corpus! {
    fulfil_an_order => completes(|| fulfil_an_order(order(4, &[("tea", 2), ("cup", 5)], "Oslo"))), completes(|| fulfil_an_order(order(5, &[("tea", 1)], "Rome")));
    group_orders_into_vans => completes(|| group_orders_into_vans(vec![order(1, &[("a", 3)], "x"), order(2, &[("a", 2)], "y"), order(3, &[("b", 3)], "x"), order(4, &[("c", 9)], "x")], 5));
    shortest_route => completes(|| shortest_route([((1, 2), 4), ((1, 3), 1), ((3, 2), 1), ((2, 4), 5)].into(), 1, 4)), completes(|| shortest_route([((1, 2), 4), ((2, 3), 1)].into(), 1, 9));
    track_a_parcel => completes(|| track_a_parcel("p".into()));
    inventory_with_negative_stock => completes(|| inventory_with_negative_stock([("a".to_owned(), 3)].into(), vec![("a".into(), -5), ("b".into(), 2), ("b".into(), -2)]));
    itinerary_with_alternatives => completes(|| itinerary_with_alternatives([("a", "b"), ("aa", "bbb"), ("a", "bbb")].map(|(a, b)| (a.into(), b.into())).into()));
    auction_of_a_load => completes_with(Letters::default().with("bid", ("x", 90)).with("bid", ("y", 95)).with("bid", ("z", 80)), || auction_of_a_load(texts(&["x", "y", "z"]), 85)),
        completes(|| auction_of_a_load(texts(&["x"]), 85));
    customs_form => completes(|| customs_form(vec![("tea".into(), 9.5), ("camera".into(), 80.25)])), completes(|| customs_form(vec![("a".into(), 1.0), ("bb".into(), 6.0), ("ccc".into(), 15.5)]));
    returns_desk => completes(|| returns_desk(vec![(1, "broken".into()), (2, "late".into()), (3, "other:no".into()), (4, "other:colour".into()), (5, "mood".into())]));
    cold_chain => completes(|| cold_chain(vec![5, 9, 9, 4, 6])), completes(|| cold_chain(vec![9, 9, 9, 9, 9]));
}

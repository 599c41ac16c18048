//! Tickets: triage, answers, escalation, waiting for people.
use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Ticket {
    id: u64,
    customer: Option<String>,
    subject: String,
    tags: BTreeSet<String>,
    priority: Priority,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Priority {
    Low,
    #[default]
    Normal,
    Urgent,
}

impl Ticket {
    fn new(id: u64, subject: &str) -> Self {
        Self {
            id,
            customer: (id % 2 == 1).then(|| format!("customer {id}")),
            subject: subject.into(),
            tags: BTreeSet::new(),
            priority: Priority::default(),
        }
    }

    fn is_vip(&self) -> bool {
        matches!(&self.customer, Some(name) if name.ends_with('7'))
    }

    fn tag(&mut self, tag: impl Into<String>) -> &mut Self {
        self.tags.insert(tag.into());
        self
    }
}

twin! {
    async fn triage_a_ticket(io, mut_ticket: Ticket) -> anyhow::Result<Ticket> {
        let mut ticket = mut_ticket;
        let words = ticket.subject.to_lowercase();
        ticket.priority = if words.contains("down") || ticket.is_vip() {
            Priority::Urgent
        } else if step!("angry", io.did("is it angry", words.contains('!')).await?) {
            Priority::Normal
        } else {
            Priority::Low
        };
        let priority = ticket.priority;
        ticket.tag("triaged").tag(format!("{priority:?}"));
        let team = match (ticket.priority, ticket.customer.as_deref()) {
            (Priority::Urgent, _) => "oncall",
            (_, Some(name)) if name.len() > 10 => "accounts",
            (Priority::Low | Priority::Normal, _) => "general",
        };
        step!("assign", io.did(format!("{} to {team}", ticket.id), ()).await?);
        ticket.tags.insert(team.to_string());
        Ok(ticket)
    }
}

twin! {
    async fn answer_until_the_customer_is_happy(io, question: String) -> anyhow::Result<Vec<String>> {
        let mut thread = vec![question];
        let mut apologies = 0;
        loop {
            let history = thread.join("\n");
            let reply = step!("reply", io.did(format!("reply to {} chars", history.len()), format!("try {}", thread.len())).await?);
            thread.push(reply);
            let Some(answer): Option<String> = recv!("customer", timeout = Duration::from_secs(86_400)) else {
                thread.push("closed for silence".into());
                break;
            };
            match answer.trim().to_ascii_lowercase().as_str() {
                "thanks" | "solved" => break,
                "human" => {
                    step!("hand over", io.did("hand over", ()).await?);
                    thread.push("a person takes over".into());
                    return Ok(thread);
                }
                _ if apologies < 2 => {
                    apologies += 1;
                    thread.push(answer);
                }
                other => bail!("cannot help with {other:?}"),
            }
        }
        step!("survey", io.did("survey", ()).await?);
        Ok(thread)
    }
}

twin! {
    async fn merge_duplicate_tickets(io, tickets: Vec<Ticket>) -> anyhow::Result<BTreeMap<String, Vec<u64>>> {
        let mut by_subject: BTreeMap<String, Vec<Ticket>> = BTreeMap::new();
        for ticket in tickets {
            by_subject.entry(ticket.subject.clone()).or_default().push(ticket);
        }
        let mut merged = BTreeMap::new();
        for (subject, mut group) in by_subject {
            group.sort_by_key(|t| std::cmp::Reverse(t.id));
            let [Ticket { id: main_id, .. }, rest @ ..] = &group[..] else { unreachable!() };
            for duplicate in rest {
                step!("close", io.did(format!("{} is {main_id}", duplicate.id), ()).await?);
            }
            if !rest.is_empty() {
                merged.insert(subject, group.iter().map(|t| t.id).collect());
            }
        }
        step!("report", io.did(format!("{merged:?}"), ()).await?);
        Ok(merged)
    }
}

twin! {
    async fn sla_with_reminders(io, id: u64, levels: Vec<(String, u64)>) -> anyhow::Result<String> {
        let mut waited = Duration::ZERO;
        for (level, minutes) in &levels {
            let limit = Duration::from_secs(minutes * 60);
            step!("page", io.did(format!("page {level} about {id}"), ()).await?);
            let taken = select! {
                by: String = recv!(format!("ack-{id}")) => Some(by),
                _ = sleep!(limit) => None,
            };
            if let Some(by) = taken {
                return Ok(format!("{by} ({level}) after {} min", waited.as_secs() / 60));
            }
            waited += limit;
        }
        step!("incident", io.did(format!("nobody took {id} in {waited:?}"), ()).await?);
        Err(anyhow!("{} levels did not answer", levels.len()))
    }
}

twin! {
    async fn draft_from_macros(io, ticket: Ticket, templates: BTreeMap<String, String>) -> anyhow::Result<String> {
        let name = ticket.customer.clone().unwrap_or_else(|| "friend".to_string());
        let mut chosen = templates.iter().filter(|(key, _)| ticket.subject.contains(key.as_str())).map(|(_, text)| text.clone()).collect::<Vec<_>>();
        if chosen.is_empty() {
            let text = step!("write", io.did("write", format!("Dear {{name}}, about {}: we look into it.", ticket.subject)).await?);
            chosen.push(text);
        }
        let mut mail = String::new();
        for (i, text) in chosen.into_iter().enumerate() {
            let filled = text.replace("{name}", &name).replace("{id}", &ticket.id.to_string());
            let polished = step!("polish", io.did(format!("polish {i}"), filled.trim().to_string()).await?);
            if !mail.is_empty() {
                mail += "\n\n";
            }
            mail += &polished;
        }
        Ok(mail)
    }
}

twin! {
    async fn refund_with_guardrails(io, request: Value) -> anyhow::Result<Value> {
        let order = request["order"].as_str().context("no order")?.to_owned();
        let amount = request.pointer("/refund/amount").and_then(Value::as_u64).unwrap_or(0);
        let checks = json!([
            { "name": "exists", "ok": step_ok(&order) },
            { "name": "small", "ok": amount < 100 },
        ]);
        let failed: Vec<String> = checks
            .as_array()
            .into_iter()
            .flatten()
            .filter(|c| c["ok"] != json!(true))
            .filter_map(|c| Some(c["name"].as_str()?.to_string()))
            .collect();
        let approved = match &failed[..] {
            [] => true,
            [only] if only == "small" => {
                step!("ask", io.did(format!("ask about {order}"), ()).await?);
                recv!("manager")
            }
            _ => false,
        };
        let mut answer = json!({ "order": order, "approved": approved });
        if approved {
            let receipt = step!("refund", effect, on_unknown = OnUnknown::Retry, |op| {
                let _key = op.id().to_owned();
                io.did(format!("refund {amount}"), amount * 2).await?
            });
            answer["receipt"] = receipt.into();
        }
        answer["failed"] = json!(failed);
        Ok(answer)
    }
}

fn step_ok(order: &str) -> bool {
    order.starts_with("o-")
}

#[derive(Debug)]
enum DeskError {
    Closed(u64),
    Backend(anyhow::Error),
    Number(std::num::ParseIntError),
}

impl std::fmt::Display for DeskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed(id) => write!(f, "ticket {id} is closed"),
            Self::Backend(error) => write!(f, "backend: {error}"),
            Self::Number(error) => write!(f, "number: {error}"),
        }
    }
}

impl std::error::Error for DeskError {}

impl From<anyhow::Error> for DeskError {
    fn from(error: anyhow::Error) -> Self {
        Self::Backend(error)
    }
}

impl From<std::num::ParseIntError> for DeskError {
    fn from(error: std::num::ParseIntError) -> Self {
        Self::Number(error)
    }
}

twin! {
    async fn commands_in_a_mail(io, lines: Vec<String>) -> Result<Vec<u64>, DeskError> {
        let mut open: VecDeque<u64> = VecDeque::new();
        let mut closed = Vec::new();
        for line in lines {
            let mut words = line.split_whitespace();
            let (verb, argument) = (words.next().unwrap_or_default().to_owned(), words.next().map(|w| w.parse::<u64>()).transpose()?);
            match (verb.as_str(), argument) {
                ("open", Some(id)) => {
                    step!("open", io.did(format!("open {id}"), ()).await?);
                    open.push_back(id);
                }
                ("close", Some(id)) => {
                    let place = open.iter().position(|o| *o == id).ok_or(DeskError::Closed(id))?;
                    open.remove(place);
                    step!("close", io.did(format!("close {id}"), ()).await?);
                    closed.push(id);
                }
                ("close", None) => {
                    while let Some(id) = open.pop_front() {
                        step!("close all", io.did(format!("close {id} too"), ()).await?);
                        closed.push(id);
                    }
                }
                _ => {
                    step!("ignore", io.fails("a bad line").await?);
                }
            }
        }
        Ok(closed)
    }
}

twin! {
    async fn weekly_report_of_the_desk(io, tickets: Vec<Ticket>) -> anyhow::Result<String> {
        let total = tickets.len();
        let (urgent, others): (Vec<_>, Vec<_>) = tickets.into_iter().partition(|t| t.priority == Priority::Urgent);
        let mut table: Vec<(String, usize, f64)> = Vec::new();
        let lists = BTreeMap::from([("urgent", urgent), ("others", others)]);
        for (label, list) in &lists {
            let answered = step!("answered", io.did(format!("count {label}"), list.iter().filter(|t| t.customer.is_some()).count()).await?);
            let share = if list.is_empty() { 0.0 } else { answered as f64 / list.len() as f64 };
            table.push((label.to_string(), answered, share));
        }
        let width = table.iter().map(|(label, ..)| label.len()).max().unwrap_or(0);
        let rows: String = table.iter().map(|(label, n, share)| format!("{label:>width$} {n:03} {:.1}%\n", share * 100.0)).collect();
        step!("send", io.did(format!("send {}", rows.len()), ()).await?);
        Ok(format!("{total} tickets\n{rows}"))
    }
}

fn tickets() -> Vec<Ticket> {
    let mut list: Vec<Ticket> =
        [(1, "down"), (2, "login"), (3, "down"), (7, "bill!"), (4, "login")].map(|(id, s)| Ticket::new(id, s)).into();
    list[2].priority = Priority::Urgent;
    list
}

corpus! {
    triage_a_ticket => completes(|| triage_a_ticket(tickets().remove(1))), completes(|| triage_a_ticket(Ticket::new(11, "why!")));
    answer_until_the_customer_is_happy => completes(|| answer_until_the_customer_is_happy("q".into())),
        completes_with(Letters::default().with("customer", "no").with("customer", " Solved"), || answer_until_the_customer_is_happy("q".into())),
        completes_with(Letters::default().with("customer", "human"), || answer_until_the_customer_is_happy("q".into())),
        fails_with(Letters::default().with("customer", "a").with("customer", "b").with("customer", "c"), "cannot help", || answer_until_the_customer_is_happy("q".into()));
    merge_duplicate_tickets => completes(|| merge_duplicate_tickets(tickets()));
    sla_with_reminders => completes_with(Letters::default().with("ack-4", "ada"), || sla_with_reminders(4, vec![("one".into(), 5)])),
        fails("2 levels", || sla_with_reminders(4, vec![("one".into(), 5), ("two".into(), 50)]));
    draft_from_macros => completes(|| draft_from_macros(Ticket::new(1, "login"), BTreeMap::new())),
        completes(|| draft_from_macros(Ticket::new(2, "login and bill"), [("login", "Hi {name} "), ("bill", "#{id}")].map(|(a, b)| (a.into(), b.into())).into()));
    refund_with_guardrails =>
        completes_with(Letters::default().with("manager", true), || refund_with_guardrails(json!({ "order": "o-1", "refund": { "amount": 500 } })));
    commands_in_a_mail => completes(|| commands_in_a_mail(["open 1", "open 2", "open 3", "close 2", "close"].map(String::from).into())),
        fails("ticket 9 is closed", || commands_in_a_mail(["open 1", "close 9"].map(String::from).into())),
        fails("backend: a bad line failed", || commands_in_a_mail(["open 1", "what"].map(String::from).into())),
        fails("number: invalid digit", || commands_in_a_mail(["open 1", "open x"].map(String::from).into()));
    weekly_report_of_the_desk => completes(|| weekly_report_of_the_desk(tickets()));
}

//! Tasks, priorities, dependencies: agents that keep a plan and change it.
use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Task {
    priority: u8,
    name: String,
    #[serde(default)]
    needs: Vec<String>,
}

impl Task {
    fn new(priority: u8, name: &str) -> Self {
        Task { priority, name: name.to_owned(), needs: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Outcome {
    Done(String),
    Split(Vec<Task>),
    Blocked { by: String },
}

async fn work(io: &Io, task: &Task) -> anyhow::Result<Outcome> {
    let outcome = match (task.priority, task.name.len()) {
        (9, _) => Outcome::Split(vec![Task::new(3, &format!("{}1", task.name)), Task::new(4, &format!("{}2", task.name))]),
        (_, 1) => Outcome::Blocked { by: "a name".into() },
        (p, n) => Outcome::Done(format!("{}/{p}/{n}", task.name)),
    };
    io.did(format!("work on {}", task.name), outcome).await
}

twin! {
    async fn priority_queue_of_tasks(io, first: Vec<Task>) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let mut heap: std::collections::BinaryHeap<Task> = first.into();
        let (mut done, mut blocked) = (Vec::new(), Vec::new());
        while let Some(task) = heap.pop() {
            match step!("work", work(&io, &task).await?) {
                Outcome::Done(text) => done.push(text),
                Outcome::Split(parts) => heap.extend(parts),
                Outcome::Blocked { by } => blocked.push(format!("{} by {by}", task.name)),
            }
            if heap.len() > 10 {
                bail!("the plan explodes at {}", task.name);
            }
        }
        step!("report", io.did(format!("{}+{}", done.len(), blocked.len()), ()).await?);
        Ok((done, blocked))
    }
}

twin! {
    async fn plan_execute_replan(io, goal: String, max_plans: usize) -> anyhow::Result<String> {
        let mut past: Vec<(String, String)> = Vec::new();
        let mut plans = 0;
        'plan: while plans < max_plans {
            plans += 1;
            let plan: Vec<String> = step!("plan", {
                let steps = (0..3).map(|i| format!("{goal} {}", i + past.len())).collect();
                io.did(format!("plan {plans} knowing {}", past.len()), steps).await?
            });
            for (i, item) in plan.iter().enumerate() {
                let result = step!("execute", io.did(format!("execute {item}"), item.len() + i * plans).await?);
                past.push((item.clone(), result.to_string()));
                let keep = step!("reflect", io.did(format!("reflect on {result}"), result % 4 != 3).await?);
                if !keep {
                    continue 'plan;
                }
            }
            let summary: Vec<&str> = past.iter().map(|(_, result)| result.as_str()).collect();
            return Ok(format!("{} after {plans}", summary.join(" ")));
        }
        bail!("no plan of {plans} held: {past:?}")
    }
}

twin! {
    async fn hierarchical_delegation(io, task: String, depth: u32) -> anyhow::Result<u64> {
        let parts: Vec<String> = step!("decompose", io.did(format!("decompose {task}"), (0..depth).map(|i| format!("{task}.{i}")).collect()).await?);
        if parts.is_empty() {
            return Ok(step!("leaf", io.did(format!("do {task}"), task.len() as u64).await?));
        }
        let mut total = 0;
        for part in parts {
            total += call!(hierarchical_delegation(part, depth - 1))?;
        }
        step!("combine", io.did(format!("combine {total}"), ()).await?);
        Ok(total)
    }
}

twin! {
    async fn schedule_a_week(io, meetings: Vec<(String, u8)>, per_day: u8) -> anyhow::Result<Vec<(u8, Vec<String>)>> {
        let days = 1..=5u8;
        let mut week: Vec<(u8, u8, Vec<String>)> = days.map(|d| (d, per_day, vec![])).collect();
        let mut homeless = Vec::new();
        for (name, hours) in meetings {
            match week.iter_mut().filter(|(_, free, _)| *free >= hours).max_by_key(|(day, free, _)| (*free, std::cmp::Reverse(*day))) {
                Some((day, free, names)) => {
                    *free -= hours;
                    names.push(name.clone());
                    let day = *day;
                    step!("invite", io.did(format!("{name} on {day}"), ()).await?);
                }
                None => homeless.push(name),
            }
        }
        for name in homeless.iter().rev() {
            step!("decline", io.did(format!("decline {name}"), ()).await?);
        }
        week.retain(|(_, _, names)| !names.is_empty());
        Ok(week.into_iter().map(|(day, _, names)| (day, names)).collect())
    }
}

twin! {
    async fn hill_climbing(io, start: i64) -> anyhow::Result<(i64, i64)> {
        let score = |x: i64| -(x - 7) * (x - 7) + 50;
        let (mut best, mut height) = (start, step!("score", io.did("score", score(start)).await?));
        let mut stride = 4;
        while stride > 0 {
            let mut moved = false;
            for candidate in [best - stride, best + stride] {
                let h = step!("try", io.did(format!("try {candidate}"), score(candidate)).await?);
                if h > height {
                    (best, height, moved) = (candidate, h, true);
                    break;
                }
            }
            if !moved {
                stride /= 2;
            }
        }
        Ok((best, height))
    }
}

twin! {
    async fn swap_until_sorted(io, list: Vec<u32>) -> anyhow::Result<(Vec<u32>, usize)> {
        let mut list = list;
        let mut swaps = 0;
        let n = list.len();
        for round in (1..n).rev() {
            let mut calm = true;
            for i in 0..round {
                let (left, right) = (list[i], list[i + 1]);
                if step!("compare", io.did(format!("{left} > {right}?"), left > right).await?) {
                    list.swap(i, i + 1);
                    swaps += 1;
                    calm = false;
                }
            }
            if calm { break }
        }
        Ok((list, swaps))
    }
}

twin! {
    async fn tree_of_thoughts(io, problem: String, width: usize, depth: usize) -> anyhow::Result<String> {
        let mut beam: Vec<(String, i32)> = vec![(problem, 0)];
        for level in 0..depth {
            let mut next: Vec<(String, i32)> = Vec::new();
            for (thought, score) in &beam {
                let ideas = step!("expand", io.did(format!("expand {thought}"), vec![format!("{thought}a"), format!("{thought}b"), format!("{thought}c")]).await?);
                for (i, idea) in ideas.into_iter().enumerate() {
                    let value = step!("value", io.did(format!("value {idea}"), (i as i32 * 7 + level as i32 * 3) % 5).await?);
                    next.push((idea, score + value));
                }
            }
            next.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
            next.truncate(width);
            beam = next;
        }
        let (thought, score) = beam.into_iter().next().ok_or_else(|| anyhow!("no thoughts"))?;
        Ok(format!("{thought} {score}"))
    }
}

twin! {
    async fn blackboard_of_specialists(io, facts: Vec<String>) -> anyhow::Result<BTreeSet<String>> {
        let rules: [(&[&str], &str); 3] = [(&["rain", "out"], "wet"), (&["wet"], "cold"), (&["cold", "tired"], "ill")];
        let mut known: BTreeSet<String> = facts.into_iter().collect();
        loop {
            let fresh: Vec<String> = rules
                .iter()
                .filter(|(needs, gives)| needs.iter().all(|n| known.contains(*n)) && !known.contains(*gives))
                .map(|(_, gives)| gives.to_string())
                .collect();
            if fresh.is_empty() {
                return Ok(known);
            }
            for fact in fresh {
                if step!("verify", io.did(format!("verify {fact}"), true).await?) {
                    known.insert(fact);
                }
            }
        }
    }
}

twin! {
    async fn deadline_aware_work(io, jobs: Vec<(String, u64)>, budget_ms: u64) -> anyhow::Result<(Vec<String>, u64)> {
        let mut clock = 0u64;
        let mut finished = vec![];
        let mut jobs = VecDeque::from(jobs);
        while let Some((name, cost)) = jobs.pop_front() {
            if clock + cost > budget_ms {
                if let Some((after, _)) = jobs.front() {
                    step!("skip", io.did(format!("skip {name} before {after}"), ()).await?);
                }
                continue;
            }
            clock += step!("run", io.did(format!("run {name}"), cost).await?);
            finished.push(name);
        }
        Ok((finished, budget_ms - clock))
    }
}

twin! {
    async fn goals_with_conditions(io, inputs: BTreeMap<String, i32>) -> anyhow::Result<String> {
        type Rule = fn(&BTreeMap<String, i32>) -> bool;
        let goals: Vec<(&str, Rule)> = vec![("rich", |m| m.get("gold").is_some_and(|g| *g > 3)), ("safe", |m| !m.contains_key("wolf"))];
        let open: Vec<String> = goals.iter().filter(|(_, holds)| !holds(&inputs)).map(|(name, _)| name.to_string()).collect();
        drop(goals);
        let mut inputs = inputs;
        for goal in &open {
            match goal.as_str() {
                "rich" => {
                    let gold = step!("dig", io.did("dig", 5).await?);
                    *inputs.entry("gold".into()).or_insert(0) += gold;
                }
                "safe" => {
                    step!("fence", io.did("fence", ()).await?);
                    inputs.remove("wolf");
                }
                _ => unreachable!("{goal}"),
            }
        }
        Ok(inputs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("&"))
    }
}

corpus! {
    priority_queue_of_tasks => completes_hashed(|| priority_queue_of_tasks(vec![Task::new(9, "big"), Task::new(1, "small"), Task::new(5, "x")]));
    plan_execute_replan => completes(|| plan_execute_replan("tea".into(), 9)), fails("no plan", || plan_execute_replan("abcde".into(), 1));
    hierarchical_delegation => completes(|| hierarchical_delegation("t".into(), 2));
    schedule_a_week => completes(|| schedule_a_week(vec![("a".into(), 2), ("b".into(), 3), ("c".into(), 9), ("d".into(), 2)], 4));
    hill_climbing => completes(|| hill_climbing(0));
    swap_until_sorted => completes(|| swap_until_sorted(vec![3, 1, 2, 4]));
    tree_of_thoughts => completes(|| tree_of_thoughts("p".into(), 2, 2));
    blackboard_of_specialists => completes(|| blackboard_of_specialists(["rain", "out", "tired"].map(String::from).into()));
    deadline_aware_work => completes(|| deadline_aware_work(vec![("a".into(), 4), ("b".into(), 9), ("c".into(), 3), ("d".into(), 9)], 10));
    goals_with_conditions => completes(|| goals_with_conditions([("wolf".to_owned(), 1), ("gold".to_owned(), 2)].into()));
}

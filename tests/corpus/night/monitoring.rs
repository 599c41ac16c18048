//! Watching, alerting, repairing.
use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
enum Health {
    Up,
    Slow(u32),
    Down,
}

impl Health {
    const fn is_bad(self) -> bool {
        !matches!(self, Self::Up | Self::Slow(0..=99))
    }

    fn as_str(&self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Slow(_) => "slow",
            Self::Down => "down",
        }
    }
}

async fn probe(io: &Io, service: &str, round: u32) -> anyhow::Result<Health> {
    let health = match (service.len() as u32 + round) % 4 {
        0 => Health::Down,
        1 => Health::Slow(round * 100),
        _ => Health::Up,
    };
    io.did(format!("probe {service} {round}"), health).await
}

twin! {
    async fn alert_on_changes_only(io, services: Vec<String>, rounds: u32) -> anyhow::Result<Vec<String>> {
        let mut last: BTreeMap<String, Health> = BTreeMap::new();
        let mut alerts = Vec::new();
        for round in 0..rounds {
            for service in &services {
                let health = step!("probe", probe(&io, service, round).await?);
                let before = last.insert(service.clone(), health);
                let status = health.as_str();
                if before.is_some_and(|b| b.as_str() != status) {
                    step!("alert", io.did(format!("{service} is {status}"), ()).await?);
                    alerts.push(format!("{round}:{service}:{status}"));
                }
            }
            sleep!(Duration::from_secs(60));
        }
        Ok(alerts)
    }
}

twin! {
    async fn circuit_breaker(io, calls: Vec<bool>) -> anyhow::Result<(u32, u32)> {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        enum Breaker {
            Closed { failures: u32 },
            Open { until: usize },
            HalfOpen,
        }
        let mut breaker = Breaker::Closed { failures: 0 };
        let (mut ok, mut skipped) = (0, 0);
        for (tick, works) in calls.iter().copied().enumerate() {
            if let Breaker::Open { until } = breaker {
                if tick < until {
                    skipped += 1;
                    continue;
                }
                breaker = Breaker::HalfOpen;
            }
            let result = step!("call", catch, if works { io.did(format!("call {tick}"), ()).await? } else { io.fails("call").await.map(drop)? });
            breaker = match (breaker, result.is_ok()) {
                (_, true) => {
                    ok += 1;
                    Breaker::Closed { failures: 0 }
                }
                (Breaker::Closed { failures }, false) if failures < 1 => Breaker::Closed { failures: failures + 1 },
                (_, false) => {
                    step!("open", io.did(format!("open at {tick}"), ()).await?);
                    Breaker::Open { until: tick + 3 }
                }
            };
        }
        Ok((ok, skipped))
    }
}

twin! {
    async fn incident_timeline(io, id: u32) -> anyhow::Result<Vec<String>> {
        let mut timeline = vec![format!("incident {id} opened")];
        let mut severity = 3u8;
        'incident: loop {
            select! {
                note: String = recv!("note") => timeline.push(note),
                level: u8 = recv!("severity") => {
                    if level < severity {
                        step!("page", io.did(format!("page for {level}"), ()).await?);
                    }
                    severity = level;
                }
                (who, resolved): (String, bool) = recv!("status") => {
                    if resolved {
                        timeline.push(format!("resolved by {who}"));
                        break 'incident;
                    }
                    let answer = step!("ask", io.did(format!("ask {who}"), format!("{who} works on it")).await?);
                    timeline.push(answer);
                }
                _ = sleep!(Duration::from_secs(1800)) => {
                    timeline.push(format!("no news at severity {severity}"));
                    severity = severity.saturating_sub(1);
                    if severity == 0 {
                        bail!("incident {id} was forgotten");
                    }
                }
            }
        }
        step!("post mortem", io.did(format!("{} entries", timeline.len()), ()).await?);
        Ok(timeline)
    }
}

twin! {
    async fn rolling_average_alarm(io, samples: Vec<f64>, window: usize) -> anyhow::Result<Vec<(usize, f64)>> {
        let mut recent: VecDeque<f64> = VecDeque::with_capacity(window);
        let mut alarms = Vec::new();
        let mut quiet_until = 0;
        for (i, sample) in samples.into_iter().enumerate() {
            if recent.len() == window {
                recent.pop_front();
            }
            recent.push_back(sample);
            let average = recent.iter().sum::<f64>() / recent.len() as f64;
            if average < 10.0 || i < quiet_until {
                continue;
            }
            let level = step!("classify", io.did(format!("classify {average:.1}"), if average > 20.0 { 2 } else { 1 }).await?);
            alarms.push((i, average));
            quiet_until = i + level + 1;
            if level > 1 {
                step!("restart", io.did("restart", ()).await?);
                recent.clear();
            }
        }
        Ok(alarms)
    }
}

twin! {
    async fn runbook_of_remedies(io, service: String) -> anyhow::Result<String> {
        let remedies: [&'static str; 3] = ["restart", "scale", "fail over"];
        let mut tried = 0;
        for remedy in remedies {
            let health = step!("probe", probe(&io, &service, tried).await?);
            if !health.is_bad() {
                return Ok(if tried == 0 { "nothing to do" } else { remedies[tried as usize - 1] }.to_string());
            }
            tried += 1;
            step!("remedy", io.did(format!("{remedy} {service}"), ()).await?);
            sleep!(Duration::from_millis(1 << tried));
        }
        bail!("{} remedies did not help", remedies.len())
    }
}

twin! {
    async fn backoff_with_jitter_by_hand(io, fails: u32) -> anyhow::Result<u32> {
        let mut delay = Duration::from_millis(10);
        let max = Duration::from_millis(60);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let answer = step!("call", catch, { ensure!(attempt > fails, "attempt {attempt}"); io.did("answered", attempt * 10).await? });
            let Err(error) = answer else {
                break Ok(answer.unwrap_or_default() + attempt);
            };
            if delay >= max {
                break Err(anyhow!("gave up: {error}"));
            }
            let jitter = step!("dice", io.did("dice", u64::from(attempt * 7 % 5)).await?);
            sleep!(delay + Duration::from_millis(jitter));
            delay = (delay * 2).min(max);
        }
    }
}

twin! {
    async fn log_clusters(io, lines: Vec<String>) -> anyhow::Result<Vec<(String, usize)>> {
        fn shape(line: &str) -> String {
            let mut out = String::with_capacity(line.len());
            let mut chars = line.chars().peekable();
            while let Some(c) = chars.next() {
                if c.is_ascii_digit() {
                    while chars.next_if(|c| c.is_ascii_digit()).is_some() {}
                    out.push('#');
                } else {
                    out.push(c);
                }
            }
            out
        }
        let mut clusters: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (i, line) in lines.iter().enumerate() {
            clusters.entry(shape(line)).or_default().push(i);
        }
        let mut named = Vec::new();
        for (shape, members) in clusters.iter().filter(|(_, members)| members.len() > 1).map(|(s, m)| (s.clone(), m.clone())).collect::<Vec<_>>() {
            let name = step!("name", io.did(format!("name {shape}"), shape.split(' ').next().unwrap_or("?").to_owned()).await?);
            named.push((name, members.len()));
        }
        named.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        step!("report", io.did(format!("{} of {}", named.len(), clusters.len()), ()).await?);
        Ok(named)
    }
}

twin! {
    async fn canary_release(io, version: String, stages: Vec<u8>) -> anyhow::Result<String> {
        let mut live = 0;
        for percent in stages.iter().copied().filter(|p| *p > 0).collect::<Vec<u8>>() {
            step!("shift", io.did(format!("{version} to {percent}%"), ()).await?);
            sleep!(Duration::from_secs(600));
            let errors = step!("errors", io.did(format!("errors at {percent}"), u32::from(percent) * 3 / 10).await?);
            let (limit, word) = if percent < 50 { (5, "early") } else { (20, "late") };
            if errors > limit {
                step!("roll back", io.did(format!("roll back to {live}%"), ()).await?);
                return Ok(format!("{word}: {errors} errors at {percent}%"));
            }
            live = percent;
        }
        Ok(format!("{version} at {live}%"))
    }
}

twin! {
    async fn heartbeat_of_workers(io, workers: Vec<String>) -> anyhow::Result<BTreeMap<String, u8>> {
        let mut missed: BTreeMap<String, u8> = workers.into_iter().map(|w| (w, 0)).collect();
        for _round in 0..3 {
            let beat: Option<String> = recv!("beat", timeout = SHORT);
            for (worker, count) in missed.iter_mut() {
                *count = if beat.as_ref() == Some(worker) { 0 } else { *count + 1 };
            }
            let dead: Vec<String> = missed.iter().filter(|(_, n)| **n > 1).map(|(w, _)| w.clone()).collect();
            for worker in dead {
                missed.remove(&worker);
                step!("replace", io.did(format!("replace {worker}"), ()).await?);
                missed.insert(format!("{worker}'"), 0);
            }
        }
        Ok(missed)
    }
}

twin! {
    async fn capacity_report(io, hosts: Vec<(String, Option<u32>, u32)>) -> anyhow::Result<String> {
        let mut report = String::new();
        for (i, (host, used, total)) in hosts.iter().enumerate() {
            let Some(used) = *used else {
                step!("page", io.did(format!("{host} does not answer"), ()).await?);
                report += &format!("{host}: ?\n");
                continue;
            };
            let percent = used * 100 / total;
            let trend = step!("trend", io.did(format!("trend of {host}"), i as u32 + percent / 10).await?);
            use std::fmt::Write;
            writeln!(report, "{host}: {percent}% {trend:+}")?;
            if let 90.. = percent {
                step!("grow", io.did(format!("grow {host} beyond {total}"), ()).await?);
            }
        }
        Ok(report)
    }
}

corpus! {
    alert_on_changes_only => completes(|| alert_on_changes_only(vec!["a".into(), "bb".into()], 3));
    circuit_breaker => completes(|| circuit_breaker(vec![true, false, false, true, true, true, false, true]));
    incident_timeline => completes_with(Letters::default().with("note", "hm").with("severity", 1u8).with("status", ("ada", false)).with("status", ("ada", true)), || incident_timeline(4)),
        fails("was forgotten", || incident_timeline(5));
    rolling_average_alarm => completes(|| rolling_average_alarm(vec![1.0, 15.0, 16.0, 40.0, 50.0, 3.0, 60.0], 2));
    runbook_of_remedies => completes(|| runbook_of_remedies("abcd".into()));
    backoff_with_jitter_by_hand => completes(|| backoff_with_jitter_by_hand(2)), fails("gave up: attempt 4", || backoff_with_jitter_by_hand(9));
    log_clusters => completes(|| log_clusters(["get 12", "put 1", "get 7", "boot", "put 99", "get 1"].map(String::from).into()));
    canary_release => completes(|| canary_release("v2".into(), vec![0, 5, 50, 100])), completes(|| canary_release("v3".into(), vec![1, 20]));
    heartbeat_of_workers => completes_with(Letters::default().with("beat", "b"), || heartbeat_of_workers(vec!["a".into(), "b".into()]));
    capacity_report => completes(|| capacity_report(vec![("a".into(), Some(95), 100), ("b".into(), None, 10), ("c".into(), Some(2), 8)]));
}

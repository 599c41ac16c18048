//! Fetching and reading the web, politely.
use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

async fn get(io: &Io, url: &str) -> anyhow::Result<Response> {
    let response = match url.rsplit('/').next() {
        Some("moved") => Response { status: 302, headers: vec![("Location".into(), "http://a/page".into())], body: String::new() },
        Some("busy") => Response { status: 429, headers: vec![("retry-after".into(), "2".into())], body: "later".into() },
        Some("gone") => Response { status: 404, headers: vec![], body: String::new() },
        Some("loop") => Response { status: 301, headers: vec![("location".into(), url.into())], body: String::new() },
        _ => Response {
            status: 200,
            headers: vec![("content-type".into(), "text/html".into())],
            body: format!("<a href=\"{url}/x\">x</a><a href=\"/gone\">"),
        },
    };
    io.did(format!("GET {url}"), response).await
}

fn links(body: &str) -> Vec<String> {
    body.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

twin! {
    async fn follow_redirects(io, url: String) -> anyhow::Result<Response> {
        let mut url = url;
        let mut seen = BTreeSet::new();
        for hop in 0..5 {
            if !seen.insert(url.clone()) {
                bail!("a loop at {url} after {hop} hops");
            }
            let response = step!("get", get(&io, &url).await?);
            match response.status {
                200..=299 => return Ok(response),
                code @ (301 | 302 | 307 | 308) => {
                    let Some(target) = response.header("location") else { bail!("{code} without a target") };
                    url = target.to_owned();
                }
                code => return Err(anyhow!("{url}: {code}")),
            }
        }
        Err(anyhow!("too many redirects from {}", seen.first().unwrap()))
    }
}

twin! {
    async fn honour_retry_after(io, urls: Vec<String>) -> anyhow::Result<BTreeMap<String, u16>> {
        let mut status = BTreeMap::new();
        let mut queue: VecDeque<(String, u32)> = urls.into_iter().map(|url| (url, 0)).collect();
        while let Some((url, tries)) = queue.pop_front() {
            let response = step!("get", get(&io, &url).await?);
            let wait = response.header("Retry-After").and_then(|v| v.parse::<u64>().ok());
            if let Some(seconds) = wait
                && tries < 2
            {
                sleep!(Duration::from_secs(seconds << tries));
                queue.push_back((url, tries + 1));
            } else {
                status.insert(url, response.status + tries as u16);
            }
        }
        Ok(status)
    }
}

twin! {
    async fn crawl_one_host(io, start: String, limit: usize) -> anyhow::Result<Vec<String>> {
        let host = start.split("//").nth(1).and_then(|rest| rest.split('/').next()).context("no host")?.to_string();
        let mut frontier = vec![start];
        let mut visited: Vec<String> = Vec::new();
        while visited.len() < limit {
            let Some(url) = frontier.pop() else { break };
            if visited.contains(&url) { continue }
            let page = step!("fetch", get(&io, &url).await?);
            let found: Vec<String> = links(&page.body)
                .into_iter()
                .map(|link| if link.starts_with('/') { format!("http://{host}{link}") } else { link })
                .filter(|link| link.contains(host.as_str()) && !visited.contains(link))
                .collect();
            if !found.is_empty() {
                step!("enqueue", io.did(format!("enqueue {}", found.len()), ()).await?);
            }
            frontier.extend(found);
            visited.push(url);
        }
        visited.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        Ok(visited)
    }
}

twin! {
    async fn watch_a_price(io, product: String, below: u32, rounds: u32) -> anyhow::Result<Option<u32>> {
        let mut lowest = u32::MAX;
        for round in 0..rounds {
            if round > 0 {
                sleep!(Duration::from_secs(3600));
            }
            let price = step!("price", io.did(format!("price of {product}"), 100 - round * 9 + (round % 2) * 15).await?);
            if price < lowest {
                let drop = lowest.checked_sub(price).filter(|_| lowest != u32::MAX);
                lowest = price;
                if let Some(drop @ 5..) = drop {
                    step!("tell", io.did(format!("{product} fell by {drop}"), ()).await?);
                }
            }
            if price <= below {
                return Ok(Some(price));
            }
        }
        Ok(None)
    }
}

twin! {
    async fn extract_a_table(io, html: String) -> anyhow::Result<Vec<Vec<String>>> {
        let mut table = Vec::new();
        let mut rest = html.as_str();
        while let Some(start) = rest.find("<tr>") {
            let end = rest[start..].find("</tr>").map_or(rest.len(), |end| start + end);
            let row = &rest[start + 4..end];
            let cells = row.split("<td>").skip(1).map(|cell| cell.trim_end_matches("</td>").to_owned()).collect::<Vec<_>>();
            table.push(cells);
            rest = &rest[end..];
        }
        let mut cleaned = Vec::new();
        for row in table {
            let row: Vec<String> = row.into_iter().map(|c| c.replace("&amp;", "&")).collect();
            if row.iter().any(|cell| cell.is_empty()) {
                let filled = step!("fill", io.did(format!("fill {row:?}"), vec!["?".to_string(); row.len()]).await?);
                cleaned.push(filled);
            } else {
                step!("keep", io.did("keep", ()).await?);
                cleaned.push(row);
            }
        }
        Ok(cleaned)
    }
}

twin! {
    async fn mirror_with_etags(io, urls: Vec<String>, rounds: u8) -> anyhow::Result<(u32, u32)> {
        let mut etags: BTreeMap<String, String> = BTreeMap::new();
        let (mut fresh, mut cached) = (0, 0);
        for round in 1..=rounds {
            for url in &urls {
                let known = etags.get(url).map(String::as_str).unwrap_or("-");
                let tag = step!("head", io.did(format!("head {url} {known}"), format!("{}{}", url.len(), round / 2)).await?);
                if etags.get(url) == Some(&tag) {
                    cached += 1;
                    continue;
                }
                step!("download", io.did(format!("download {url}"), ()).await?);
                etags.insert(url.clone(), tag);
                fresh += 1;
            }
        }
        Ok((fresh, cached))
    }
}

twin! {
    async fn screenshots_side_by_side(io, urls: Vec<String>) -> anyhow::Result<String> {
        let sizes = steps!(for url in urls.clone(), limit = 2, catch, {
            ensure!(!url.contains("bad"), "cannot open {url}");
            now(&io, format!("shoot {url}"), url.len() * 100).await?
        });
        let mut report = Vec::new();
        for (url, size) in urls.iter().zip(&sizes) {
            let line = match size {
                Ok(bytes) if *bytes > 500 => {
                    let bytes = *bytes;
                    let small = step!("shrink", io.did(format!("shrink {url}"), bytes / 2).await?);
                    format!("{url}: {small} (shrunk)")
                }
                Ok(bytes) => format!("{url}: {bytes}"),
                Err(error) => format!("{url}: {error}"),
            };
            report.push(line);
        }
        Ok(report.join("\n"))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Token {
    Open(String),
    Close,
    Text(String),
}

twin! {
    async fn tokens_with_a_stack(io, tokens: Vec<Token>) -> anyhow::Result<String> {
        let mut stack: Vec<(String, Vec<String>)> = vec![("root".into(), vec![])];
        for token in tokens {
            match token {
                Token::Open(name) => stack.push((name, Vec::new())),
                Token::Text(text) => {
                    let clean = step!("clean", io.did(format!("clean {text}"), text.trim().to_owned()).await?);
                    let (_, children) = stack.last_mut().context("no element is open")?;
                    children.push(clean);
                }
                Token::Close => {
                    let Some((name, children)) = stack.pop() else { bail!("one `Close` too many") };
                    let rendered = step!("render", io.did(format!("render {name}"), format!("{name}({})", children.join(","))).await?);
                    match stack.last_mut() {
                        Some((_, siblings)) => siblings.push(rendered),
                        None => return Ok(rendered),
                    }
                }
            }
        }
        bail!("{} elements are open", stack.len())
    }
}

twin! {
    async fn robots_rules(io, rules: String, paths: Vec<String>) -> anyhow::Result<Vec<(String, bool)>> {
        let disallowed: Vec<String> = rules
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim())
            .filter_map(|line| line.strip_prefix("Disallow:"))
            .map(|path| path.trim().to_string())
            .filter(|path| !path.is_empty())
            .collect();
        let allowed = |path: &str| !disallowed.iter().any(|d| path.starts_with(d.as_str()));
        let mut result = vec![];
        for path in paths {
            let ok = allowed(&path);
            if ok {
                step!("visit", io.did(format!("visit {path}"), ()).await?);
            }
            result.push((path, ok));
        }
        Ok(result)
    }
}

twin! {
    async fn sitemap_of_sitemaps(io, root: String) -> anyhow::Result<usize> {
        let index: Vec<(String, Vec<u32>)> = step!("index", io.did(format!("index {root}"), vec![("news".to_string(), vec![1, 2]), ("old".into(), vec![]), ("blog".into(), vec![3])]).await?);
        let mut pages = 0;
        for (section, ids) in &index {
            let [first, others @ ..] = &ids[..] else {
                step!("empty", io.did(format!("{section} is empty"), ()).await?);
                continue;
            };
            step!("newest", io.did(format!("{section}/{first}"), ()).await?);
            for id in others {
                step!("older", io.did(format!("{section}/{id}"), ()).await?);
                pages += 1;
            }
            pages += 1;
        }
        Ok(pages)
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

corpus! {
    follow_redirects => completes(|| follow_redirects("http://a/moved".into())), fails("a loop", || follow_redirects("http://a/loop".into())), fails("404", || follow_redirects("http://a/gone".into()));
    honour_retry_after => completes(|| honour_retry_after(texts(&["http://a/busy", "http://a/b", "http://a/gone"])));
    crawl_one_host => completes(|| crawl_one_host("http://a/b".into(), 4)), fails("no host", || crawl_one_host("a".into(), 4));
    watch_a_price => completes(|| watch_a_price("tea".into(), 80, 9)), completes(|| watch_a_price("tea".into(), 1, 3));
    extract_a_table => completes(|| extract_a_table("<tr><td>a</td><td>b &amp; c</td></tr><tr><td></td></tr>".into()));
    mirror_with_etags => completes(|| mirror_with_etags(texts(&["a", "bb"]), 3));
    screenshots_side_by_side => completes(|| screenshots_side_by_side(texts(&["a.test", "bad", "b"])));
    tokens_with_a_stack => completes(|| tokens_with_a_stack(vec![Token::Open("p".into()), Token::Text(" a ".into()), Token::Close, Token::Text("b".into()), Token::Close])),
        fails("2 elements", || tokens_with_a_stack(vec![Token::Text("x".into()), Token::Open("p".into())]));
    robots_rules => completes(|| robots_rules("User-agent: *\nDisallow: /private # x\nDisallow:\n".into(), texts(&["/a", "/private/b", "/c"])));
    sitemap_of_sitemaps => completes(|| sitemap_of_sitemaps("r".into()));
}

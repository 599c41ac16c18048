//! `forever::layout` of real fibers: shown, drawn, stored, compared.
use forever::layout;
use forever::layout::Layout;

use super::versions;

versions! {
    child(io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        Ok(a)
    }
    research[version = 2](io, topic: String, limit: u32) -> Vec<String> {
        let plan = step!(io.did("plan", vec![topic.clone()]).await?);
        let mut notes = Vec::new();
        for question in plan {
            let hits = step!("search", was = "look", io.did("search", limit).await?);
            if hits == 0 { continue; }
            let n = call!(child::work(hits))?;
            notes.push(step!(io.did("note", format!("{question} {n}")).await?));
        }
        Ok(notes)
    }
    plain(io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b)
    }
    same(io, n: u32) -> u32 {

        let a = step!(io.did("a", n).await?);
        println!("{a}");
        let b: u32 = step!(io.did("b", a).await?);
        Ok(b * a - 1)
    }
    other_bodies(io, n: u32) -> u32 {
        anyhow::ensure!(n > 0, "none");

        let a = step!(io.did("another", n * 7).await?);
        let c = a * 3;
        let c = c + 1;
        if c > 5 { anyhow::bail!("too much") }
        let b: u32 = step!({ io.did("b", 0).await?; c });
        Ok(b * a - 1)
    }
    other_step(io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let c = step!(io.did("b", a).await?);
        Ok(a + c)
    }
    literal(io, n: u32) -> u32 {
        let a = step!("a", io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b)
    }
    keeps_less(io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        Ok(b)
    }
    keeps_more(io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b + n)
    }
    more_steps(io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        step!("c", io.did("c", ()).await?);
        Ok(a + b)
    }
    called(io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = call!(child::work(a))?;
        Ok(a + b)
    }
    next_version[version = 1](io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b)
    }
    other_name[name = "labour"](io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b)
    }
    other_argument(io, m: u32) -> u32 {
        let a = step!(io.did("a", m).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b)
    }
    with_was(io, n: u32) -> u32 {
        let a = step!("a", was = "z", io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b)
    }
}

/// The table without its last column, which is compared nowhere.
fn without_reasons(table: &str) -> String {
    let place = table.lines().nth(1).and_then(|head| head.find("because")).expect("there is a head");
    table.lines().enumerate().map(|(n, line)| line.get(..place).filter(|_| n > 0).unwrap_or(line).trim_end().to_owned() + "\n").collect()
}

#[test]
fn a_layout_is_a_table_for_people() {
    let table = without_reasons(&layout::of::<research::work>().to_string());
    let expected = "\
work(topic, limit), version 2, begins at 1
#  name               kind  next       keeps
1  plan               step  end, 2     limit
                                       plan (its value)
2  search (was look)  step  end, 2, 3  limit
                                       notes
                                       plan left
                                       question
                                       hits (its value)
3  n                  call  4          limit
                                       notes
                                       plan left
                                       question
                                       n (its value)
4  did                step  end, 2     limit
                                       notes
                                       plan left
                                       did() (its value)
";
    assert_eq!(table, expected, "\n{table}");
}

#[test]
fn the_reasons_in_a_table_are_in_the_words_of_the_source() {
    let table = layout::of::<research::work>().to_string();
    for word in ["__", "forever_key", "::core::", "letmut"] {
        assert!(!table.contains(word), "{word}\n{table}");
    }
    assert!(table.contains("used by `search`"), "{table}");
}

#[test]
fn a_layout_is_drawn_as_a_graph() {
    let graph = layout::of::<research::work>().mermaid();
    let expected = "\
flowchart TD
    start([\"work\"])
    s1[\"plan\"]
    s2[\"search\"]
    s3[[\"n\"]]
    s4[\"did\"]
    finish([\"end\"])
    start --> s1
    s1 --> finish
    s1 --> s2
    s2 --> finish
    s2 --> s2
    s2 --> s3
    s3 --> s4
    s4 --> finish
    s4 --> s2
";
    assert_eq!(graph, expected, "\n{graph}");
}

#[test]
fn a_layout_comes_back_from_json_as_it_was() {
    let now = layout::of::<research::work>();
    let text = serde_json::to_string_pretty(&now).unwrap();
    let back: Layout = serde_json::from_str(&text).unwrap();
    assert_eq!((&back, back.hash(), back.to_string(), back.mermaid()), (&now, now.hash(), now.to_string(), now.mermaid()));
    assert_eq!((back.fiber(), back.version()), ("work", 2));
    assert_eq!(now.can_resume(&back), Ok(()));
}

#[test]
fn the_hash_changes_with_what_a_snapshot_depends_on_and_with_nothing_else() {
    let now = layout::of::<plain::work>().hash();
    assert_eq!(layout::of::<same::work>().hash(), now);
    let others = [
        layout::of::<other_bodies::work>().hash(),
        layout::of::<other_step::work>().hash(),
        layout::of::<literal::work>().hash(),
        layout::of::<keeps_less::work>().hash(),
        layout::of::<keeps_more::work>().hash(),
        layout::of::<more_steps::work>().hash(),
        layout::of::<called::work>().hash(),
        layout::of::<next_version::work>().hash(),
        layout::of::<other_name::work>().hash(),
        layout::of::<other_argument::work>().hash(),
        layout::of::<with_was::work>().hash(),
    ];
    let all: std::collections::BTreeSet<&String> = others.iter().chain([&now]).collect();
    assert_eq!(all.len(), others.len() + 1, "{others:?}");
}

/// What `can_resume` says, without the layouts that it names.
fn said(now: &Layout, old: &Layout) -> String {
    match now.can_resume(old) {
        Ok(()) => String::new(),
        Err(drift) => {
            assert_eq!((drift.now(), drift.before()), (now, Some(old)));
            let text = drift.to_string();
            let hashes = format!(" (layout {} before, {} now)", old.hash(), now.hash());
            text.strip_suffix(&hashes).unwrap_or_else(|| panic!("{text}")).to_owned()
        }
    }
}

#[test]
fn a_layout_says_why_it_cannot_resume_another() {
    let old = layout::of::<plain::work>();
    assert_eq!(said(&layout::of::<same::work>(), &old), "");
    assert_eq!(said(&layout::of::<other_bodies::work>(), &old), "");
    assert_eq!(said(&layout::of::<literal::work>(), &old), "");
    assert_eq!(said(&layout::of::<keeps_less::work>(), &old), "");
    assert_eq!(said(&layout::of::<more_steps::work>(), &old), "");
    assert_eq!(
        said(&layout::of::<other_step::work>(), &old),
        "`work` cannot resume: step `b` is gone: if it is `c` now, write `was = \"b\"` there; local `c` is needed after step `c` but was not kept: if it was `b`, write `#[was = \"b\"] let c`; otherwise put it into the snapshot with `migrate`"
    );
    assert_eq!(
        said(&layout::of::<keeps_more::work>(), &old),
        "`work` cannot resume: local `n` is needed after step `a` but was not kept: put it into the snapshot with `migrate`; local `n` is needed after step `b` but was not kept: put it into the snapshot with `migrate`"
    );
    assert_eq!(
        said(&layout::of::<called::work>(), &old),
        "`work` cannot resume: `b` is a call now and was a step before: give the new one another name, or mend the snapshot with `migrate`"
    );
    assert_eq!(
        said(&layout::of::<next_version::work>(), &old),
        "`work` cannot resume: it has version 1 now and had 0 before: old snapshots need a `migrate` function"
    );
    assert_eq!(
        said(&layout::of::<other_name::work>(), &old),
        "`labour` cannot resume: it was called `work` and is called `labour` now: give it `name = \"work\"`"
    );
    assert_eq!(
        said(&layout::of::<other_argument::work>(), &old),
        "`work` cannot resume: argument `m` was not saved when the fiber was spawned: put it into a struct argument with `#[serde(default)]`, or spawn the new function under another name"
    );
}

/// The panic of a check of these layouts against a file, if it panics.
fn checked(builder: forever::Builder, path: &std::path::Path) -> Option<String> {
    let check = std::panic::AssertUnwindSafe(|| forever::layout::check!(builder, path));
    let payload = std::panic::catch_unwind(check).err()?;
    Some(*payload.downcast::<String>().expect("a text"))
}

#[test]
fn the_layouts_of_a_program_are_kept_in_a_file_and_a_difference_is_told_with_its_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forever.layouts.json");
    let builder = || forever::Forever::builder().fiber::<research::work>();
    let missing = checked(builder().fiber::<plain_named::work>(), &path).unwrap();
    assert!(missing.starts_with("there is no file `") && missing.contains("`plain` is new."), "{missing}");
    assert!(missing.ends_with("run the test with FOREVER_LAYOUTS=accept, and commit the file."), "{missing}");

    // What `FOREVER_LAYOUTS=accept` writes.
    let layouts = serde_json::json!({ "layouts": { "plain": layout::of::<plain_named::work>(), "work": layout::of::<research::work>() } });
    let mut text = layouts.to_string();
    while let Some(at) = text.find("\"why\":\"") {
        let end = at + "\"why\":\"".len() + text[at + "\"why\":\"".len()..].find('"').unwrap();
        text.replace_range(at..=end, "\"WHY\":\"\"");
    }
    std::fs::write(&path, text.replace("WHY", "why")).unwrap();
    assert_eq!(checked(builder().fiber::<plain_named::work>(), &path), None);

    let gone = checked(builder(), &path).unwrap();
    assert!(gone.contains("`plain` is gone: its fibers will be parked."), "{gone}");
    let safe = checked(builder().fiber::<plain_with_more_steps::work>(), &path).unwrap();
    assert!(
        safe.contains(
            "`plain` has changed; safe, if the types of its values are as before: `Builder::check` reads those that are stored\n"
        ),
        "{safe}"
    );
    assert!(safe.lines().any(|line| line.starts_with("+ 3  c")), "{safe}");
    let parks = checked(builder().fiber::<plain_without_b::work>(), &path).unwrap();
    assert!(
        parks.contains("fibers that stand there will be parked: \n  step `b` is gone: if it was renamed, write `was = \"b\"`"),
        "{parks}"
    );
    std::fs::write(&path, "{").unwrap();
    assert!(checked(builder(), &path).unwrap().contains("cannot be read: "));
}

versions! {
    plain_named[name = "plain"](io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        Ok(b)
    }
    plain_with_more_steps[name = "plain"](io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        step!("c", io.did("c", ()).await?);
        Ok(b)
    }
    plain_without_b[name = "plain"](io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        Ok(a)
    }
}

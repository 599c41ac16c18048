//! Values that no snapshot can hold, as guards and permits: while no crash comes, each is dropped where plain Rust drops it.
use super::drops::{Counted, DROPPED, drops, mark, noisy};
use super::harness::{Io, plain_step as step, same, twin};

/// A value that no snapshot can hold, as a directory that is removed or a connection that is closed.
struct Unsaved(&'static str);

impl Unsaved {
    fn name(&self) -> String {
        self.0.to_owned()
    }
}

impl Drop for Unsaved {
    fn drop(&mut self) {
        DROPPED.with_borrow_mut(|d| d.push(self.0.to_owned()));
    }
}

twin! {
    async fn used_before(io, n: u32) -> anyhow::Result<u32> {
        let dir = Unsaved("dir");
        let path = dir.name();
        let (lent, length) = (Unsaved("lent"), path.len() as u32);
        let listed = vec![Unsaved("listed")];
        let given = Unsaved("given");
        drop(given);
        step!("one", io.did(format!("{path}{}{}", lent.name(), listed.len()), ()).await?);
        mark("one");
        for i in 0..n {
            let round = Unsaved("round");
            mark(&round.name());
            step!("two", io.did("two", i).await?);
            mark("two");
            step!("three", io.did("three", i).await?);
        }
        {
            let Some(inner) = Some(Unsaved("inner")) else { return Ok(0) };
            mark(&inner.name());
            step!("four", io.did("four", ()).await?);
            mark("four");
        }
        mark("end");
        Ok(length)
    }
}

#[test]
fn an_unsaved_value_that_is_used_before_a_step_is_dropped_where_its_block_ends() {
    let (plain, fiber) = drops(|| used_before(2));
    let round = ["-round", "-two", "round"];
    let rest = ["-inner", "-four", "inner", "-end", "listed", "lent", "dir"];
    assert_eq!(plain, [&["given", "-one"][..], &round, &round, &rest].concat());
    assert_eq!(fiber, plain);
}

impl Unsaved {
    fn list(&self) -> Vec<u32> {
        vec![1, 2]
    }

    fn length(&self) -> Option<u32> {
        Some(self.0.len() as u32)
    }

    fn taken(self) -> u32 {
        self.0.len() as u32
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.as_bytes().to_vec()
    }
}

fn found(name: &'static str) -> Option<Unsaved> {
    Some(Unsaved(name))
}

twin! {
    async fn in_arms(io, n: u32) -> anyhow::Result<u32> {
        if n > 0 {
            let first = Unsaved("first");
            let lent = Unsaved(if first.0.len() > 1 { "lent" } else { "other" });
            mark(&first.name());
            step!("one", io.did(lent.name(), ()).await?);
            mark("one");
        } else {
            let first = Unsaved("else");
            mark(&first.name());
            step!("two", io.did("two", ()).await?);
        }
        let length = match &found("lent") {
            None => 1,
            Some(lent) => {
                mark(&lent.name());
                2
            }
        };
        let length = length + match found("bound") {
            Some(bound) if n > 0 => {
                let again = Unsaved("again");
                mark(&bound.name());
                step!("three", io.did(again.name(), ()).await?);
                mark("three");
                7
            }
            Some(other) => {
                let another = Unsaved("another");
                mark(&other.name());
                step!("four", io.did(another.name(), ()).await?);
                8
            }
            None => 9,
        };
        step!("five", io.did("five", ()).await?);
        let mut rounds = 2;
        while let Some(round) = found("round").filter(|_| rounds > 0) {
            rounds -= 1;
            mark(&round.name());
            step!("six", io.did("six", ()).await?);
            mark("six");
        }
        let Some(stays) = found("stays") else {
            step!("seven", io.did("seven", ()).await?);
            return Ok(0);
        };
        mark(&stays.name());
        step!("eight", io.did("eight", ()).await?);
        mark("end");
        Ok(length)
    }
}

#[test]
fn an_unsaved_value_of_an_arm_is_dropped_where_the_arm_ends() {
    for n in [0, 1] {
        let (plain, fiber) = drops(|| in_arms(n));
        assert_eq!(fiber, plain, "{n}");
    }
    let arm = ["-first", "-one", "lent", "first"];
    assert_eq!(drops(|| in_arms(1)).1[..4], arm);
    same(|| in_arms(1));
}

twin! {
    async fn of_one_name(io, n: u32) -> anyhow::Result<u32> {
        let io_again = Unsaved("first");
        mark(&io_again.name());
        let io_again = Unsaved("second");
        mark(&io_again.name());
        let later = n + 1;
        step!("one", io.did("one", ()).await?);
        mark("one");
        let taken = found("taken");
        let taken = (taken, Unsaved("beside"));
        mark(&taken.1.name());
        if let Some(taken) = taken.0 {
            mark(&taken.name());
            step!("two", io.did("two", ()).await?);
            mark("two");
        }
        let found = found("called");
        mark(if found.is_some() { "found" } else { "none" });
        step!("three", io.did("three", ()).await?);
        mark("end");
        Ok(later)
    }
}

#[test]
fn unsaved_values_that_hide_others_of_their_name_are_dropped_with_them() {
    let (plain, fiber) = drops(|| of_one_name(1));
    let inner = ["-beside", "-taken", "-two", "taken", "-found", "-end"];
    assert_eq!(plain, [&["-first", "-second", "-one"][..], &inner, &["called", "beside", "second", "first"]].concat());
    assert_eq!(fiber, plain);
}

twin! {
    async fn in_other_forms(io, n: u32) -> anyhow::Result<u32> {
        let set;
        if n > 0 {
            set = Unsaved("set");
        } else {
            set = Unsaved("unset");
        }
        mark(&set.name());
        step!("one", io.did("one", ()).await?);
        {
            let moved = Unsaved("moved");
            let name = move || moved.name();
            mark(&name());
            let lent = &Unsaved("lent");
            mark(&lent.name());
            let (part, _) = (&Unsaved("part"), n);
            mark(&part.name());
            step!("two", io.did("two", ()).await?);
            mark("two");
        }
        if n > 0 {
            if n < 5 {
                let inner = Unsaved("inner");
                mark(&inner.name());
                step!("three", io.did("three", ()).await?);
                mark("three");
            }
            mark("outer");
        }
        let outside = Unsaved("outside");
        {
            mark(&outside.name());
            step!("four", io.did("four", ()).await?);
        }
        let sum = n + Unsaved("sum").length().unwrap_or(0) + step!("five", io.did("five", 1).await?);
        mark("end");
        Ok(sum)
    }
}

#[test]
fn unsaved_values_in_other_forms_are_dropped_where_plain_rust_drops_them() {
    let (plain, fiber) = drops(|| in_other_forms(1));
    let forms = ["-set", "-moved", "-lent", "-part", "-two", "part", "lent", "moved", "-inner", "-three", "inner", "-outer"];
    assert_eq!(plain, [&forms[..], &["-outside", "sum", "-end", "outside", "set"]].concat());
    assert_eq!(fiber, plain);
}

twin! {
    async fn temporaries(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = match Unsaved("matched").length() {
            Some(length) => {
                step!("one", io.did("one", ()).await?);
                mark("one");
                length
            }
            None => 0,
        };
        mark("after the match");
        if let Some(length) = Unsaved("if let").length() {
            step!("two", io.did("two", ()).await?);
            mark("two");
            sum += length;
        }
        mark("after the if let");
        let mut rounds = n;
        while let Some(length) = Unsaved("while let").length().filter(|_| rounds > 0) {
            rounds -= 1;
            step!("three", io.did("three", ()).await?);
            mark("three");
            sum += length;
        }
        for item in Unsaved("for").list().into_iter().rev() {
            step!("four", io.did("four", ()).await?);
            mark("four");
            sum += item;
        }
        mark("after the for");
        sum += Unsaved("operand").length().unwrap_or(n) + step!("five", io.did("five", 1).await?);
        mark("after the operand");
        let both = (Unsaved("tuple").length(), step!("six", io.did("six", 1).await?));
        mark("after the tuple");
        match Unsaved("taken").taken() {
            5 => {
                step!("seven", io.did("seven", ()).await?);
                mark("seven");
            }
            _ => mark("another"),
        }
        step!("end", io.did("end", ()).await?);
        Ok(sum + both.1)
    }
}

#[test]
fn an_unsaved_temporary_is_dropped_where_its_statement_ends() {
    let (plain, fiber) = drops(|| temporaries(1));
    assert_eq!(fiber, plain);
    assert_eq!(plain[..3], ["-one", "matched", "-after the match"]);
    same(|| temporaries(2));
}

twin! {
    async fn left_behind(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = 0;
        match found("some") {
            Some(_) => {
                step!("one", io.did("one", ()).await?);
                mark("one");
            }
            None => mark("none"),
        }
        match (Unsaved("taken"), Unsaved("left")) {
            (taken, _) => {
                mark(&taken.name());
                step!("two", io.did("two", ()).await?);
                mark("two");
            }
        }
        if let Some(_) = found("if let") {
            step!("three", io.did("three", ()).await?);
            mark("three");
        }
        if let None = found("no match") {
            mark("never");
        } else {
            step!("four", io.did("four", ()).await?);
            mark("four");
        }
        let mut rounds = n;
        while let Some(_) = found("while let").filter(|_| rounds > 0) {
            rounds -= 1;
            step!("five", io.did("five", ()).await?);
            mark("five");
        }
        let length = if let Some(length) = Unsaved("before else").length().filter(|_| n == 1) {
            step!("six", io.did("six", ()).await?);
            mark("then");
            length
        } else if let Some(length) = Unsaved("else if").list().into_iter().rev().next() {
            step!("seven", io.did("seven", ()).await?);
            mark("else if");
            length
        } else {
            mark("else");
            0
        };
        sum += length;
        if let Some(length) = Unsaved("chain").length()
            && let Some(_) = found("chained")
            && length > n
        {
            step!("eight", io.did("eight", ()).await?);
            mark("chain");
            sum += length;
        }
        for round in 0..3 {
            if let Some(length) = Unsaved("in a loop").length().filter(|_| round > 0) {
                step!("nine", io.did("nine", ()).await?);
                mark("in a loop");
                if round == 1 {
                    continue;
                }
                sum += length;
                break;
            } else {
                mark("not yet");
                step!("ten", io.did("ten", ()).await?);
            }
        }
        mark("end");
        step!("end", io.did("end", ()).await?);
        Ok(sum)
    }
}

#[test]
fn what_a_pattern_leaves_of_an_unsaved_value_is_dropped_where_its_statement_ends() {
    for n in 0..3 {
        let (plain, fiber) = drops(|| left_behind(n));
        assert_eq!(fiber, plain, "{n}");
        same(|| left_behind(n));
    }
    let (plain, _) = drops(|| left_behind(0));
    assert_eq!(plain[..9], ["-one", "some", "-taken", "-two", "taken", "left", "-three", "if let", "no match"]);
}

fn lends(unsaved: &Unsaved, more: u32) -> u32 {
    unsaved.length().unwrap_or_default() + more
}

impl std::ops::Deref for Unsaved {
    type Target = str;

    fn deref(&self) -> &str {
        self.0
    }
}

twin! {
    async fn in_operands(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = 0;
        match lends(&Unsaved("argument"), n) {
            1 => mark("never"),
            length => {
                step!("one", io.did("one", ()).await?);
                mark("one");
                sum += length;
            }
        }
        for round in 0..Unsaved("ab").length().unwrap_or(n) {
            step!("two", io.did("two", ()).await?);
            mark("two");
            sum += round;
        }
        match (sum, Unsaved("second").list(), Unsaved("third").length()) {
            (_, list, Some(length)) => {
                sum += list.len() as u32 + length;
                step!("three", io.did("three", ()).await?);
                mark("three");
            }
            _ => mark("never"),
        }
        match *Unsaved("reached") {
            ref text if text.len() == 3 => mark("never"),
            _ => {
                step!("four", io.did("four", ()).await?);
                mark("four");
            }
        }
        if n == 2 || Unsaved("not always").length() == Some(10) {
            step!("five", io.did("five", ()).await?);
            mark("five");
        }
        match n == 2 || Unsaved("not always").length() == Some(11) {
            true => {
                step!("six", io.did("six", ()).await?);
                mark("six");
            }
            false => mark("not six"),
        }
        let mut count = n;
        let mut next = || {
            count += 1;
            count
        };
        match (next(), Unsaved("in order").length().map(|length| length + next()), next()) {
            (first, Some(length), last) => {
                sum += first + 10 * length + 100 * last;
                step!("seven", io.did("seven", sum).await?);
                mark("seven");
            }
            _ => mark("never"),
        }
        mark("end");
        step!("end", io.did("end", ()).await?);
        Ok(sum)
    }
}

#[test]
fn an_unsaved_temporary_of_any_operand_is_dropped_where_its_statement_ends() {
    for n in 1..3 {
        let (plain, fiber) = drops(|| in_operands(n));
        assert_eq!(fiber, plain, "{n}");
        same(|| in_operands(n));
    }
    let (plain, _) = drops(|| in_operands(1));
    assert_eq!(plain[..8], ["-one", "argument", "-two", "-two", "ab", "-three", "third", "second"]);
}

twin! {
    async fn on_one_path(io, n: u32) -> anyhow::Result<u32> {
        let given = Unsaved("given");
        let mut sum = 0;
        if n == 1 {
            sum += given.taken();
            mark("taken");
            step!("one", io.did("one", ()).await?);
        } else {
            step!("two", io.did("two", ()).await?);
        }
        mark("after");
        let other = Unsaved("other");
        if n == 2 {
            sum += other.taken();
        }
        step!("three", io.did("three", ()).await?);
        mark("end");
        Ok(sum)
    }
}

#[test]
fn an_unsaved_value_that_one_path_moves_is_dropped_where_its_block_ends_on_the_others() {
    for n in [1, 2, 3] {
        let (plain, fiber) = drops(|| on_one_path(n));
        assert_eq!(fiber, plain, "{n}");
        same(|| on_one_path(n));
    }
}

twin! {
    async fn among_kept(io, n: u32) -> anyhow::Result<u32> {
        let first = Counted("first".to_owned());
        let unsaved = Unsaved("unsaved");
        let last = Counted("last".to_owned());
        let _unused = Counted("unused".to_owned());
        mark(&unsaved.name());
        step!("one", io.did("one", ()).await?);
        step!("two", io.did("two", ()).await?);
        mark(&first.0);
        mark(&last.0);
        Ok(n)
    }
}

#[test]
fn saved_and_unsaved_values_are_dropped_in_reverse_order_of_declaration() {
    let (plain, fiber) = drops(|| among_kept(1));
    assert_eq!(plain[plain.len() - 5..], ["-last", "unused", "last", "unsaved", "first"]);
    assert_eq!(fiber, plain);
}

twin! {
    async fn kept_to_the_end(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = n;
        {
            let kept = noisy("kept");
            step!("one", io.did("one", ()).await?);
            let Some(unsaved) = found("unsaved") else {
                step!("none", io.did("none", ()).await?);
                return Ok(0);
            };
            sum += unsaved.length().unwrap_or(n);
            step!("two", io.did("two", ()).await?);
            mark(&kept.0);
        }
        mark("after");
        if n > 0 {
            let list = vec![n, 2];
            let count = if n > 5 { 1 } else { 2 };
            if n == 1 {
                let more = step!("three", io.did("three", count).await?);
                list.iter().map(|x| x * more).sum::<u32>()
            } else {
                step!("four", io.did("four", ()).await?);
                n
            };
            mark("discarded");
            step!("five", io.did("five", ()).await?);
        }
        Ok(sum)
    }
}

#[test]
fn a_saved_value_that_is_used_to_the_end_is_dropped_after_unsaved_ones_behind_it() {
    let (plain, fiber) = drops(|| kept_to_the_end(1));
    assert_eq!(plain, ["-kept", "unsaved", "kept", "-after", "-discarded"]);
    assert_eq!(fiber, plain);
}

twin! {
    async fn in_places(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = n;
        match Unsaved("indexed").bytes()[0] {
            b'i' => {
                step!("one", io.did("one", ()).await?);
                mark("one");
            }
            _ => mark("never"),
        }
        match &Unsaved("sliced")[1..] {
            "liced" => {
                step!("two", io.did("two", ()).await?);
                mark("two");
            }
            _ => mark("never"),
        }
        match (Unsaved("in brackets")).length() {
            Some(11) => {
                step!("three", io.did("three", ()).await?);
                mark("three");
            }
            _ => mark("never"),
        }
        match [Unsaved("repeated").length(); 2] {
            [Some(8), _] => {
                step!("four", io.did("four", ()).await?);
                mark("four");
            }
            _ => mark("never"),
        }
        match match Unsaved("in another").length() {
            Some(10) => 1,
            _ => 2,
        } {
            1 => {
                step!("five", io.did("five", ()).await?);
                mark("five");
            }
            _ => mark("never"),
        }
        for k in 0..Unsaved("range").list()[1] {
            step!("six", io.did("six", ()).await?);
            mark("six");
            sum += k;
        }
        if let Some(length) = (Unsaved("first"), n).0.length() {
            step!("seven", io.did("seven", ()).await?);
            mark("seven");
            sum += length;
        }
        mark("end");
        step!("end", io.did("end", ()).await?);
        Ok(sum)
    }
}

#[test]
fn an_unsaved_temporary_behind_a_place_is_dropped_where_its_statement_ends() {
    let (plain, fiber) = drops(|| in_places(1));
    assert_eq!(plain[..4], ["-one", "indexed", "-two", "sliced"]);
    assert_eq!(fiber, plain);
    same(|| in_places(2));
}

twin! {
    async fn in_heads(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = n;
        match Unsaved("matched").length().unwrap_or(n) + step!("one", io.did("one", 1).await?) {
            8 => {
                step!("two", io.did("two", ()).await?);
                mark("two");
            }
            _ => mark("never"),
        }
        mark("after the match");
        for k in 0..Unsaved("ab").length().unwrap_or(n) + step!("three", io.did("three", 0).await?) {
            step!("four", io.did("four", ()).await?);
            mark("four");
            sum += k;
        }
        if let Some(k) = Some(Unsaved("if let").length().unwrap_or(n) + step!("five", io.did("five", 1).await?)).filter(|k| *k == 7) {
            step!("six", io.did("six", ()).await?);
            mark("six");
            sum += k;
        }
        mark("end");
        step!("end", io.did("end", ()).await?);
        Ok(sum)
    }
}

#[test]
fn an_unsaved_operand_of_a_head_with_a_step_is_dropped_where_its_statement_ends() {
    let (plain, fiber) = drops(|| in_heads(1));
    assert_eq!(plain[..3], ["-two", "matched", "-after the match"]);
    assert_eq!(fiber, plain);
    same(|| in_heads(2));
}

twin! {
    async fn before_an_else(io, n: u32) -> anyhow::Result<u32> {
        let list = vec![n, 2];
        let Some(last) = list.iter().rev().find(|x| **x > 0) else { return Ok(step!("never", io.did("never", 0).await?)) };
        let mut sum = *last;
        let Some(mut length) = Unsaved("temporary").length().filter(|_| n > 0) else {
            mark("else");
            step!("one", io.did("one", ()).await?);
            return Ok(9);
        };
        length += 1;
        let Ok(_) = found("left").filter(|_| n > 1).ok_or(Unsaved("refused")) else {
            mark("else");
            step!("two", io.did("two", ()).await?);
            return Ok(length);
        };
        mark("between");
        let (Some(held), 1) = (found("held"), n.min(1)) else {
            step!("three", io.did("three", ()).await?);
            return Ok(8);
        };
        sum += held.length().unwrap_or(length);
        step!("end", io.did("end", ()).await?);
        mark("end");
        Ok(sum)
    }
}

#[test]
fn what_a_let_else_has_looked_at_is_dropped_before_its_else() {
    assert_eq!(drops(|| before_an_else(0)).0, ["temporary", "-else"]);
    for n in 0..3 {
        let (plain, fiber) = drops(|| before_an_else(n));
        assert_eq!(fiber, plain, "{n}");
        same(|| before_an_else(n));
    }
}

twin! {
    async fn in_arms_that_go_on(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = n;
        let name = if n > 1 { "many" } else { "few" };
        match n {
            0 => {
                match Unsaved("looked at").length() {
                    Some(length) => sum += step!("one", io.did("one", length).await?),
                    None => mark("never"),
                }
                mark("after it");
                step!("two", io.did("two", ()).await?);
            }
            1 => {
                for k in Unsaved("items").list() {
                    sum += step!("three", io.did("three", k).await?);
                }
                mark("after them");
                if let Some(inner) = found("inner") {
                    mark(&inner.name());
                    step!("four", io.did("four", ()).await?);
                    mark("four");
                }
                step!("five", io.did("five", ()).await?);
            }
            _ => {
                // It hides what another arm names behind its first step.
                let name = Unsaved("hides");
                mark(&name.name());
                step!("six", io.did("six", ()).await?);
                mark("six");
            }
        }
        mark(name);
        if n < 3 {
            if n < 2 {
                let nested = Unsaved("nested");
                mark(&nested.name());
                step!("seven", io.did("seven", ()).await?);
                mark("seven");
            }
            mark("behind it");
            step!("eight", io.did("eight", ()).await?);
        }
        step!("end", io.did("end", ()).await?);
        Ok(sum)
    }
}

#[test]
fn an_unsaved_value_of_an_arm_that_goes_on_is_dropped_where_its_own_block_ends() {
    assert_eq!(drops(|| in_arms_that_go_on(0)).0[..2], ["looked at", "-after it"]);
    for n in 0..4 {
        let (plain, fiber) = drops(|| in_arms_that_go_on(n));
        assert_eq!(fiber, plain, "{n}");
        same(|| in_arms_that_go_on(n));
    }
}

twin! {
    async fn bound_by_patterns(io, n: u32) -> anyhow::Result<u32> {
        let either = if n > 0 { Ok(Unsaved("ok")) } else { Err(Unsaved("err")) };
        match either {
            Ok(it) | Err(it) => {
                mark(&it.name());
                step!("one", io.did("one", ()).await?);
                mark("one");
            }
        }
        match found("guarded") {
            Some(it) if n > 1 && it.length() == Some(7) => {
                step!("two", io.did("two", ()).await?);
                mark("two");
            }
            Some(it) => {
                mark(&it.name());
                step!("three", io.did("three", ()).await?);
                mark("three");
            }
            None => mark("never"),
        }
        if let Some(it) = found("chained") && it.length() == Some(7) && let Some(other) = found("other") {
            mark(&other.name());
            step!("four", io.did("four", ()).await?);
            mark("four");
        }
        match (n.to_string(), Unsaved("beside")) {
            (ref text, it) => {
                mark(text);
                mark(&it.name());
                step!("five", io.did("five", ()).await?);
                mark("five");
            }
        }
        // A method may take it.
        match found("taken") {
            Some(it) if n > 5 => step!("six", io.did("six", it.taken()).await?),
            Some(n) => {
                mark(&n.taken().to_string());
                step!("seven", io.did("seven", 1).await?)
            }
            None => n,
        };
        step!("end", io.did("end", ()).await?);
        Ok(n)
    }
}

#[test]
fn an_unsaved_value_that_a_pattern_binds_is_dropped_where_its_arm_ends() {
    for n in 0..3 {
        let (plain, fiber) = drops(|| bound_by_patterns(n));
        assert_eq!(fiber, plain, "{n}");
        same(|| bound_by_patterns(n));
    }
}

twin! {
    async fn used_by_effects(io, n: u32) -> anyhow::Result<u32> {
        let mut first = Unsaved("first");
        first.0 = "changed";
        step!("one", effect, io.did(first.name(), ()).await?);
        mark("one");
        if let Some(mut it) = found("bound") {
            it.0 = "set";
            step!("two", effect, |_op| io.did(it.name(), ()).await?);
            mark("two");
        }
        Ok(n)
    }
}

#[test]
fn an_unsaved_value_that_an_effect_uses_is_dropped_where_its_block_ends() {
    let (plain, fiber) = drops(|| used_by_effects(1));
    assert_eq!(plain, ["-one", "-two", "set", "changed"]);
    assert_eq!(fiber, plain);
}

twin! {
    async fn set_in_an_inner_block(io, n: u32) -> anyhow::Result<u32> {
        let (mut list, mut again);
        for _ in 0..2 {
            if step!("one", io.did("one", n > 0).await?) {
                let lists = vec![n];
                list = (n, format!("{lists:?}"));
                again = list;
            } else {
                step!("two", io.did("two", ()).await?);
                continue;
            }
            if let (1..=9, _) = &again {
                step!("three", io.did("three", ()).await?);
            }
        }
        let Some(last) = None::<u32> else {
            let mut five = 5;
            step!("four", io.did("four", ()).await?);
            five += n;
            return Ok(five);
        };
        Ok(last)
    }
}

#[test]
fn a_variable_that_is_set_in_an_arm_or_an_else_has_its_type_there() {
    for n in 0..2 {
        same(|| set_in_an_inner_block(n));
    }
}

twin! {
    async fn beside_steps(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = Unsaved("first").length().unwrap_or(n)
            + match Unsaved("matched").length() {
                Some(7) => step!("one", io.did("one", 1).await?),
                _ => 0,
            }
            + lends(&Unsaved("last"), n);
        mark("after the let");
        sum += match Unsaved("assigned").length() {
            Some(8) => step!("two", io.did("two", 2).await?),
            _ => 0,
        };
        mark("after the assignment");
        let Some(mut length) = Unsaved("let else").length().filter(|_| n > 0).map(|length| length + n).or(step!("three", io.did("three", None).await?)) else {
            mark("else");
            step!("four", io.did("four", ()).await?);
            return Ok(sum);
        };
        mark("after the let else");
        length += 1;
        if let Some(k) = Unsaved("if let").length().filter(|_| n > 1).or(step!("five", io.did("five", None).await?)) {
            mark("then");
            sum += step!("six", io.did("six", k).await?);
        } else {
            mark("otherwise");
            sum += step!("seven", io.did("seven", length).await?);
        }
        mark("end");
        step!("end", io.did("end", ()).await?);
        Ok(sum)
    }
}

#[test]
fn an_unsaved_temporary_of_an_operand_with_a_step_is_dropped_where_plain_rust_drops_it() {
    assert_eq!(drops(|| beside_steps(0)).0[..3], ["last", "matched", "first"]);
    assert_eq!(drops(|| beside_steps(0)).0[3..], ["-after the let", "assigned", "-after the assignment", "let else", "-else"]);
    for n in 0..3 {
        let (plain, fiber) = drops(|| beside_steps(n));
        assert_eq!(fiber, plain, "{n}");
        same(|| beside_steps(n));
    }
}

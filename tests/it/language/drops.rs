//! When values are dropped, and which values a fiber may hold between threads.
//!
//! What is observed: a value that is needed after a step is dropped where the plain function drops it. A value that is not
//! needed any more at a step is not in its snapshot, so a resumed run has none to drop: its drop happened in the run before.
use std::cell::{Cell, RefCell};
use std::sync::Mutex;

use forever::prelude::{Res, fiber};
use serde::{Deserialize, Serialize};

use super::harness::{Io, everywhere, plain_step as step, same, twin};

thread_local! {
    static DROPPED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug, Serialize, Deserialize)]
struct Noisy(String, #[serde(skip)] Original);

/// Whether a value was made by the body, not read from a snapshot.
#[derive(Debug, Default)]
struct Original(bool);

impl Drop for Noisy {
    fn drop(&mut self) {
        if self.1.0 {
            DROPPED.with_borrow_mut(|d| d.push(self.0.clone()));
        }
    }
}

fn noisy(name: &str) -> Noisy {
    Noisy(name.to_owned(), Original(true))
}

fn dropped() -> Vec<String> {
    DROPPED.take()
}

/// What is dropped in a plain run and in a run of the fiber without a kill, with the marks that the body itself makes.
fn drops<F: super::harness::Twin>(make: impl Fn() -> F) -> (Vec<String>, Vec<String>)
where
    F::Output: std::fmt::Debug,
{
    use forever::testing::{Stage, StartFrom};
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    dropped();
    runtime.block_on(make().plain()).ok();
    let plain = dropped();
    runtime.block_on(Stage::new().resource(Io::default()).run(StartFrom::Start(make()), None));
    (plain, dropped())
}

fn mark(text: &str) {
    DROPPED.with_borrow_mut(|d| d.push(format!("-{text}")));
}

twin! {
    async fn needed_to_the_end(io, n: u32) -> anyhow::Result<u32> {
        let first = noisy("first");
        let second = noisy("second");
        step!("one", io.did("one", ()).await?);
        {
            let inner = noisy("inner");
            step!("two", io.did("two", ()).await?);
            mark(&inner.0);
        }
        mark("after inner");
        step!("three", io.did("three", ()).await?);
        mark(&first.0);
        mark(&second.0);
        Ok(n)
    }
}

#[test]
fn values_needed_to_the_end_of_their_block_are_dropped_in_reverse_order_there() {
    let (plain, fiber) = drops(|| needed_to_the_end(1));
    assert_eq!(plain, ["-inner", "inner", "-after inner", "-first", "-second", "second", "first"]);
    assert_eq!(fiber, plain);
}

twin! {
    async fn round(io, n: u32) -> anyhow::Result<u32> {
        for i in 0..n {
            let value = noisy(&format!("v{i}"));
            step!("one", io.did("one", ()).await?);
            if i == 1 { mark("continue"); mark(&value.0); continue }
            step!("two", io.did("two", ()).await?);
            mark(&format!("end of {i} {}", value.0));
        }
        Ok(n)
    }
}

#[test]
fn a_value_of_a_round_is_dropped_at_its_end() {
    let (plain, fiber) = drops(|| round(3));
    assert_eq!(plain, ["-end of 0 v0", "v0", "-continue", "-v1", "v1", "-end of 2 v2", "v2"]);
    assert_eq!(fiber, plain);
}

twin! {
    async fn replaced(io, n: u32) -> anyhow::Result<u32> {
        let mut value = noisy("a");
        step!("one", io.did(value.0.clone(), ()).await?);
        mark(&value.0);
        value = noisy("b");
        mark("set");
        step!("two", io.did("two", ()).await?);
        drop(value);
        mark("dropped");
        value = noisy("c");
        step!("three", io.did("three", ()).await?);
        mark(&value.0);
        Ok(n)
    }
}

#[test]
fn a_replaced_value_is_dropped_when_it_is_replaced() {
    let (plain, fiber) = drops(|| replaced(1));
    assert_eq!(plain, ["-a", "a", "-set", "b", "-dropped", "-c", "c"]);
    assert_eq!(fiber, plain);
}

twin! {
    async fn early(io, n: u32) -> anyhow::Result<u32> {
        let kept = noisy("kept");
        let other = noisy("other");
        step!("one", io.did("one", ()).await?);
        if n == 1 {
            let branch = noisy("branch");
            step!("two", io.did("two", ()).await?);
            mark(&branch.0);
            return Ok(kept.0.len() as u32 + other.0.len() as u32);
        }
        if n == 2 { anyhow::bail!("{}{}", kept.0, other.0) }
        Ok(0)
    }
}

#[test]
fn an_early_return_drops_from_the_inside_out() {
    for n in 1..3 {
        let (plain, fiber) = drops(|| early(n));
        assert_eq!(fiber, plain, "{n}");
    }
    assert_eq!(drops(|| early(1)).0, ["-branch", "branch", "other", "kept"]);
}

twin! {
    async fn still_same(io, n: u32) -> anyhow::Result<u32> {
        let a = noisy("a");
        let b = noisy("b");
        step!("one", io.did("one", n).await?);
        let list = vec![a, b];
        step!("two", io.did("two", ()).await?);
        for (i, x) in list.into_iter().enumerate() {
            step!("x", io.did(format!("{i}{}", x.0), ()).await?);
        }
        Ok(n)
    }
}

#[test]
fn values_with_drop_come_through_a_kill() {
    assert_eq!(same(|| still_same(1)).log, ["one", "two", "0a", "1b"]);
    same(|| early(1));
    same(|| replaced(1));
    same(|| round(3));
}

#[fiber]
async fn not_sync(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    let cell = Cell::new(n);
    let shared = RefCell::new(vec![n]);
    let lock = Mutex::new(3);
    let a = step!(io.did("a", 1).await?);
    cell.set(cell.get() + a);
    for x in 0..2 {
        shared.borrow_mut().push(x);
        step!("x", io.did("x", x).await?);
        cell.set(cell.get() * 2);
    }
    *lock.lock().unwrap() += 1;
    step!("end", io.did("end", ()).await?);
    let list = shared.into_inner();
    Ok(cell.get() + list.len() as u32 + *lock.lock().unwrap())
}

#[test]
fn values_that_threads_cannot_share_are_kept_across_steps() {
    let (outcome, ..) = everywhere(|| not_sync(4));
    assert_eq!(outcome, "Completed(27)");
}

#[test]
fn the_future_of_a_fiber_is_send() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    use forever::testing::{Outcome, Stage, StartFrom};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let played = runtime.block_on(async {
        let play = async { Stage::new().resource(Io::default()).run(StartFrom::Start(not_sync(4)), None).await };
        tokio::spawn(send(play)).await.unwrap()
    });
    assert_eq!(played.outcome, Outcome::Completed(27));
}

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

/// A value whose drop has an effect, whether it was made by the body or read from a snapshot.
#[derive(Debug, Serialize, Deserialize)]
struct Counted(String);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.with_borrow_mut(|d| d.push(self.0.clone()));
    }
}

twin! {
    async fn counted(io, n: u32) -> anyhow::Result<u32> {
        let value = Counted("value".to_owned());
        step!("one", io.did("one", ()).await?);
        step!("two", io.did("two", ()).await?);
        mark(&value.0);
        Ok(n)
    }
}

#[test]
fn the_read_back_of_debug_builds_drops_no_copy() {
    let (plain, fiber) = drops(|| counted(1));
    assert_eq!(plain, ["-value", "value"]);
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

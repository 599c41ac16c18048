//! Rulings that need to know what is kept: borrows that cannot be taken again, values partly moved.
use crate::names::Table;
use crate::plan::Plan;
use crate::report::Report;
use crate::tree::Body;

pub(crate) fn check(_body: &Body, _table: &Table, _plan: &Plan, _report: &mut Report) {}

//! Chat: turns, their logs, and what becomes of them when they are interrupted.
mod killed;
mod scripted;
mod turns;

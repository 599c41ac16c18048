//! Databases that another process has left, damaged: see `damage`.
mod damage;
mod desk;
mod programs;

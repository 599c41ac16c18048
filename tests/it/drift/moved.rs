//! Steps and effects that have moved across the place of a fiber.
use super::{stopped, versions};

#[tokio::test(start_paused = true)]
async fn an_effect_that_is_done_and_comes_again_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            step!("charge", effect, io.did("charge", ()).await?);
            step!("mail", io.did("mail", ()).await?);
            step!("last", io.did("last", ()).await?);
            Ok(n)
        }
        behind(io, n: u32) -> u32 {
            step!("mail", io.did("mail", ()).await?);
            step!("charge", effect, io.did("charge", ()).await?);
            step!("last", io.did("last", ()).await?);
            Ok(n)
        }
        looped(io, n: u32) -> u32 {
            step!("mail", io.did("mail", ()).await?);
            let mut i = 0;
            while i < n {
                i += 1;
                step!("charge", effect, io.did("charge", ()).await?);
            }
            step!("last", io.did("last", ()).await?);
            Ok(n)
        }
        side(io, n: u32) -> u32 {
            step!("mail", io.did("mail", ()).await?);
            steps!("both", step!("charge", effect, io.did("charge", ()).await?), step!("x", io.did("x", ()).await?));
            step!("last", io.did("last", ()).await?);
            Ok(n)
        }
        plain(io, n: u32) -> u32 {
            step!("mail", io.did("mail", ()).await?);
            step!("charge", io.did("charge", ()).await?);
            step!("last", io.did("last", ()).await?);
            Ok(n)
        }
        renamed(io, n: u32) -> u32 {
            step!("mail", io.did("mail", ()).await?);
            step!("charge again", effect, io.did("charge again", ()).await?);
            step!("last", io.did("last", ()).await?);
            Ok(n)
        }
    }
    let fiber = stopped(old::work(3), "last").await;
    let why = "`charge` was before `mail` and may come after it now, where it would run again: leave it where it was until no fiber is there, \
               or give it a new name, `step!(\"..\", ..)`, if it is to run again; otherwise raise `version` and `migrate` the snapshot";
    fiber.parks::<behind::work>(why).await;
    fiber.parks::<looped::work>(why).await;
    fiber.parks::<side::work>(why).await;
    fiber.parks::<plain::work>(why).await;
    fiber.resumes::<renamed::work>(3, &["charge again", "last"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_is_to_come_and_comes_before_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            step!("mail", io.did("mail", ()).await?);
            step!("x", io.did("x", ()).await?);
            step!("charge", effect, io.did("charge", ()).await?);
            Ok(n)
        }
        new(io, n: u32) -> u32 {
            step!("charge", effect, io.did("charge", ()).await?);
            step!("mail", io.did("mail", ()).await?);
            step!("x", io.did("x", ()).await?);
            Ok(n)
        }
    }
    let fiber = stopped(old::work(3), "x").await;
    fiber
        .parks::<new::work>(
            "`charge` was after `mail` and comes before it now, where it would never run: leave it where it was until no fiber is there, or \
             give it a new name, `step!(\"..\", ..)`, if it is not to run; otherwise raise `version` and `migrate` the snapshot",
        )
        .await;
    fiber.resumes::<old::work>(3, &["x", "charge"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_moved_out_of_the_loop_around_the_place_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            for i in 0..n {
                step!("charge", effect, io.did(format!("charge {i}"), ()).await?);
                step!("mail", io.did(format!("mail {i}"), ()).await?);
            }
            Ok(n)
        }
        new(io, n: u32) -> u32 {
            for i in 0..n {
                step!("mail", io.did(format!("mail {i}"), ()).await?);
            }
            step!("charge", effect, io.did("charge", ()).await?);
            Ok(n)
        }
    }
    let fiber = stopped(old::work(2), "charge 1").await;
    fiber.parks_naming::<new::work>("`charge` was before `mail` and may come after it now").await;
}

#[tokio::test(start_paused = true)]
async fn steps_that_move_on_one_side_of_the_place_resume() {
    versions! {
        old(io, n: u32) -> u32 {
            step!("a", io.did("a", ()).await?);
            step!("b", io.did("b", ()).await?);
            step!("c", io.did("c", ()).await?);
            step!("d", io.did("d", ()).await?);
            step!("e", io.did("e", ()).await?);
            Ok(n)
        }
        new(io, n: u32) -> u32 {
            step!("b", io.did("b", ()).await?);
            step!("a", io.did("a", ()).await?);
            step!("c", io.did("c", ()).await?);
            step!("e", io.did("e", ()).await?);
            step!("d", io.did("d", ()).await?);
            Ok(n)
        }
    }
    let fiber = stopped(old::work(3), "d").await;
    fiber.resumes::<new::work>(3, &["e", "d"]).await;
}

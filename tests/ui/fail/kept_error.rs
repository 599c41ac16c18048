use forever::prelude::*;

#[fiber]
async fn book(trip: String) -> anyhow::Result<usize> {
    match parse(&trip) {
        Ok(days) => Ok(days),
        Err(error) => {
            step!(cancel(&trip).await?);
            Err(error.context(trip))
        }
    }
}

fn parse(trip: &str) -> anyhow::Result<usize> {
    Ok(trip.len())
}

async fn cancel(trip: &str) -> anyhow::Result<usize> {
    Ok(trip.len())
}

fn main() {}

//! A client of the payment server, as a program that takes money has one.
use anyhow::Context;
use reqwest::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Policy for a charge in doubt. Each policy has an account of its own at the bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Policy {
    Retry,
    Check,
    Park,
    Fail,
}

impl Policy {
    pub(crate) const ALL: [Policy; 4] = [Policy::Retry, Policy::Check, Policy::Park, Policy::Fail];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Policy::Retry => "retry",
            Policy::Check => "check",
            Policy::Park => "park",
            Policy::Fail => "fail",
        }
    }
}

/// A charge to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) policy: Policy,
    pub(crate) number: u32,
    pub(crate) cents: u32,
}

impl Order {
    pub(crate) fn id(&self) -> String {
        format!("{}-{}", self.policy.name(), self.number)
    }
}

/// A charge that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) charge: usize,
    pub(crate) order: String,
    pub(crate) cents: u32,
}

/// The bank, over HTTP.
#[derive(Clone)]
pub(crate) struct Bank {
    http: reqwest::Client,
    url: String,
}

impl Bank {
    pub(crate) fn at(url: &str) -> anyhow::Result<Self> {
        // Fails if a provider is installed already, which will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Bank { http: reqwest::Client::builder().no_proxy().build()?, url: url.to_owned() })
    }

    /// Makes a charge, or returns the one that was made under the key.
    pub(crate) async fn charge(&self, key: &str, order: &Order) -> anyhow::Result<Receipt> {
        let request = self.http.post(self.charges(order.policy)).header("Idempotency-Key", key);
        let request = request.header("Content-Type", "application/json").body(serde_json::to_vec(order)?);
        read(request.send().await?).await?.context("the bank knows nothing of its own charge")
    }

    /// The charge that was made under a key, if one was.
    pub(crate) async fn find(&self, policy: Policy, key: &str) -> anyhow::Result<Option<Receipt>> {
        read(self.http.get(format!("{}/{key}", self.charges(policy))).send().await?).await
    }

    /// The charge that was made for an order, whatever its key, if one was.
    pub(crate) async fn find_order(&self, order: &Order) -> anyhow::Result<Option<Receipt>> {
        read(self.http.get(format!("{}/{}/orders/{}", self.url, order.policy.name(), order.id())).send().await?).await
    }

    fn charges(&self, policy: Policy) -> String {
        format!("{}/{}/charges", self.url, policy.name())
    }
}

async fn read<T: DeserializeOwned>(answer: reqwest::Response) -> anyhow::Result<Option<T>> {
    if answer.status() == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&answer.error_for_status()?.bytes().await?)?))
}

//! `--network-rate`: most bytes a second that a domain sends and receives.

use std::str::FromStr;

use clap::Args;
use doppel_api::NetworkRate;
use doppel_net::{MOST_WEIGHT, Rates};

use crate::options::values;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct One {
    sent: bool,
    received: bool,
    /// None: as fast as it can.
    rate: Option<u64>,
}

impl FromStr for One {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (sent, received, size) = match text.split_once(':') {
            None => (true, true, text),
            Some(("out", size)) => (true, false, size),
            Some(("in", size)) => (false, true, size),
            Some((way, _)) => return Err(format!("{way:?} is neither `in` nor `out`")),
        };
        let rate = values::size(size)?;
        if (1..1024).contains(&rate) {
            return Err("at least 1k, or 0 for no limit".into());
        }
        Ok(Self { sent, received, rate: (rate > 0).then_some(rate) })
    }
}

/// Options about rates.
#[derive(Args, Clone, Debug, Default)]
pub struct RateArgs {
    /// Most bytes a second the domain sends (out:), receives (in:) or either beyond its loopback, as 500k or out:10m; 0: as
    /// fast as it can
    #[arg(long, value_name = "[in:|out:]SIZE")]
    network_rate: Vec<One>,
    /// Its share of the network service's work beside other domains that are busy there, 1 to 10000; 100 if none is given
    #[arg(long, value_name = "WEIGHT", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_WEIGHT)))]
    network_weight: Option<u32>,
    /// Bytes a second, sent and received together, that go before others' whatever they weigh, as 10m; 0: none
    #[arg(long, value_name = "SIZE", value_parser = guarantee)]
    network_guarantee: Option<u64>,
}

fn guarantee(text: &str) -> Result<u64, String> {
    let rate = values::size(text)?;
    if (1..1024).contains(&rate) {
        return Err("at least 1k, or 0 for none".into());
    }
    Ok(rate)
}

impl RateArgs {
    /// Whether none is given.
    pub fn is_empty(&self) -> bool {
        self.network_rate.is_empty() && self.network_weight.is_none() && self.network_guarantee.is_none()
    }

    /// Its share of the service.
    pub fn weight(&self) -> Option<u32> {
        self.network_weight
    }

    /// What goes first; 0: nothing does any more.
    pub fn guarantee(&self) -> Option<u64> {
        self.network_guarantee
    }

    /// What is given; none if nothing is.
    pub fn given(&self) -> Option<NetworkRate> {
        (!self.network_rate.is_empty()).then(|| self.all())
    }

    /// All of them, for the supervisor. The last of a direction counts.
    pub fn all(&self) -> NetworkRate {
        self.network_rate.iter().fold(NetworkRate::default(), |all, one| NetworkRate {
            sent: if one.sent { one.rate } else { all.sent },
            received: if one.received { one.rate } else { all.received },
        })
    }

    /// All of them, for a network service of this command's own.
    pub fn of_service(&self) -> Rates {
        let NetworkRate { sent, received } = self.all();
        let guaranteed = self.network_guarantee.filter(|rate| *rate > 0);
        Rates { outbound: sent, inbound: received, weight: self.network_weight, guaranteed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&str]) -> NetworkRate {
        let network_rate = texts.iter().map(|t| t.parse().unwrap()).collect();
        RateArgs { network_rate, ..RateArgs::default() }.all()
    }

    #[test]
    fn directions_and_sizes() {
        assert_eq!(all(&[]), NetworkRate::default());
        assert_eq!(all(&["1m"]), NetworkRate { sent: Some(1 << 20), received: Some(1 << 20) });
        assert_eq!(all(&["1m", "in:0", "out:2k"]), NetworkRate { sent: Some(2048), received: None });
        for bad in ["", "up:1m", "1023", "in:", "fast"] {
            assert!(bad.parse::<One>().is_err(), "{bad}");
        }
    }
}

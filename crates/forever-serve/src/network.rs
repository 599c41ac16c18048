//! Addresses and networks, for trusted proxies and for limits per address.
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// An address, or a network: `10.0.0.7`, `10.0.0.0/8`, `fd00::/8`.
///
/// ```
/// use forever_serve::{Network, NotANetwork};
///
/// # fn main() -> Result<(), NotANetwork> {
/// let office: Network = "10.0.0.0/8".parse()?;
/// assert!(office.contains([10, 1, 2, 3].into()));
/// assert!("10.0.0.0/33".parse::<Network>().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// Error of a text that is no address or network.
///
/// See [`Network`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotANetwork(String);

impl fmt::Display for NotANetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no address, such as `10.0.0.7`, and no network, such as `10.0.0.0/8`", self.0)
    }
}

impl std::error::Error for NotANetwork {}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Network { address, bits: length(address) }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let not = || NotANetwork(text.to_owned());
        let Some((address, bits)) = text.split_once('/') else {
            return text.parse::<IpAddr>().map(Network::from).map_err(|_| not());
        };
        let address: IpAddr = address.parse().map_err(|_| not())?;
        let bits = bits.parse::<u32>().ok().filter(|bits| *bits <= length(address)).ok_or_else(not)?;
        Ok(Network { address, bits })
    }
}

impl Network {
    /// Whether the network contains this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        length(address) == length(self.address) && first_bits(address, self.bits) == first_bits(self.address, self.bits)
    }
}

/// The unit for limits per address, since one client may have several: an IPv4 address, or the
/// first half of an IPv6 address.
pub(super) fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

fn length(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn first_bits(address: IpAddr, bits: u32) -> u128 {
    let (all, length) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    all.checked_shr(length - bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        let cases = [
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.8", false),
            ("10.0.0.7", "::ffff:10.0.0.7", true),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "fe80::1", true),
        ];
        for (network, address, inside) in cases {
            let network: Network = network.parse().unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{network:?} {address}");
        }
        for text in ["", "x", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8", "fd00::/129", "10.0.0.0/", "localhost"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_client_has_half_of_an_address_of_version_six() {
        let of = |address: &str| neighbourhood(address.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}

//! Which HTTP requests come from this machine: those of a loopback address that name this machine
//! as their host and that no proxy has passed on.
use std::net::IpAddr;

/// Whether a request comes from this machine.
///
/// `from` is the address that it comes from, `hosts` are its `Host` headers, and `headers` the
/// names of its headers in lower case; none where a proxy that is trusted has told the address.
///
/// After DNS rebinding, a page of another site reaches this machine by that site's name.
pub fn is_local<'h>(
    from: Option<IpAddr>,
    hosts: impl IntoIterator<Item = Option<&'h str>>,
    headers: impl IntoIterator<Item = &'h str>,
) -> bool {
    let mut hosts = hosts.into_iter();
    let names_it = hosts.next().flatten().is_some_and(names_this_machine) && hosts.next().is_none();
    names_it && from.is_some_and(is_loopback) && !headers.into_iter().any(is_of_a_proxy)
}

/// Whether a header is one that proxies add to what they pass on, told by its words. There is no
/// list of all, and some proxies add none.
pub fn is_of_a_proxy(header: &str) -> bool {
    const WORDS: &str = "addr address akamai amzn appengine arr azure cdn cf clientip cloud envoy fastly fly forward forwarded ip \
                         original proxy proxyuser vercel via";
    header.split(['-', '_']).any(|word| WORDS.split(' ').any(|known| known == word))
}

/// Whether a name, with or without a port, means this machine everywhere.
pub fn names_this_machine(authority: &str) -> bool {
    let name = without_port(authority);
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

/// The host in `host:port`, and the address in `[address]:port`.
pub fn without_port(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.rsplit_once(':').filter(|(name, _)| !name.contains(':')).map_or(authority, |(name, _)| name),
    }
}

/// Whether an address is one of this machine alone.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_proxies_are_told_by_their_words() {
        let by_proxies = "forwarded via x-forwarded-for x-forwarded-host x-forwarded-anything x-original-forwarded-for forwarded-for \
            x-forward-for x-real-ip x-client-ip x-cluster-client-ip client-ip true-client-ip x-remote-ip x-remote-addr x-proxyuser-ip \
            wl-proxy-client-ip cf-connecting-ip cf-ray cdn-loop fastly-client-ip fastly-ff fly-client-ip x-vercel-id x-amzn-trace-id \
            x-azure-clientip x-azure-ref x-appengine-user-ip x-envoy-external-address x-cloud-trace-context x-arr-log-id \
            akamai-origin-hop proxy-connection x-original-url x_forwarded_for";
        for header in by_proxies.split_whitespace() {
            assert!(is_of_a_proxy(header), "{header}");
        }
        let by_clients = "accept accept-encoding accept-language authorization cache-control connection content-length content-type cookie \
            dnt host if-none-match last-event-id origin pragma priority range referer sec-ch-ua sec-ch-ua-platform sec-fetch-dest \
            sec-fetch-site sec-gpc sec-websocket-extensions sec-websocket-key te traceparent upgrade upgrade-insecure-requests user-agent \
            x-api-key x-csrf-token x-forever-inspect x-request-id x-requested-with";
        for header in by_clients.split_whitespace() {
            assert!(!is_of_a_proxy(header), "{header}");
        }
    }

    #[test]
    fn a_local_request_comes_from_this_machine_and_names_it_once() {
        let local = "127.0.0.1".parse().ok();
        for (from, host, expected) in [
            (local, "localhost:7117", true),
            (local, "LOCALHOST", true),
            (local, "127.0.0.1", true),
            (local, "[::1]:7117", true),
            ("::1".parse().ok(), "localhost", true),
            ("::ffff:127.0.0.1".parse().ok(), "localhost", true),
            (local, "evil.example:7117", false),
            (local, "localhost.evil.example", false),
            (local, "app.localhost", false),
            (local, "10.0.0.1", false),
            (local, "", false),
            ("10.0.0.1".parse().ok(), "localhost", false),
            (None, "localhost", false),
        ] {
            assert_eq!(is_local(from, [Some(host)], ["accept"]), expected, "{from:?} {host}");
        }
        assert!(!is_local(local, [], []));
        assert!(!is_local(local, [None], []));
        assert!(!is_local(local, [Some("localhost"), Some("localhost")], []));
        assert!(!is_local(local, [Some("localhost")], ["accept", "via"]));
    }
}

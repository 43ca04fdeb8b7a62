//! `/etc/hosts` of a pod, byte for byte as the kubelet writes it.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::HostAlias;

const HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HEADER_HOST: &[u8] = b"# Kubernetes-managed hosts file (host network).\n";
/// The names every Linux machine has. Only the `::1` line separates its names by spaces.
const FIXED: &str = "127.0.0.1\tlocalhost\n\
                     ::1\tlocalhost ip6-localhost ip6-loopback\n\
                     fe00::0\tip6-localnet\n\
                     fe00::0\tip6-mcastprefix\n\
                     fe00::1\tip6-allnodes\n\
                     fe00::2\tip6-allrouters\n";

/// The file of a pod with its own network: `ips` are its addresses, `hostname` and `domain` its names.
pub fn hosts_file(ips: &[IpAddr], hostname: &str, domain: Option<&str>, aliases: &[HostAlias]) -> String {
    let mut file = String::from(HEADER) + FIXED;
    for ip in ips {
        match domain.filter(|d| !d.is_empty()) {
            Some(domain) => file += &format!("{ip}\t{hostname}.{domain}\t{hostname}\n"),
            None => file += &format!("{ip}\t{hostname}\n"),
        }
    }
    file + &alias_lines(aliases)
}

/// The file of a pod on the host's network: the host's own file, whatever its encoding, and the aliases.
pub fn hosts_file_host_network(node_hosts: &[u8], aliases: &[HostAlias]) -> Vec<u8> {
    [HEADER_HOST, node_hosts, alias_lines(aliases).as_bytes()].concat()
}

fn alias_lines(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let mut lines = String::from("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        lines += &alias.ip;
        for name in alias.hostnames.iter().flatten() {
            lines.push('\t');
            lines += name;
        }
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases() -> Vec<HostAlias> {
        vec![
            HostAlias { ip: "10.0.0.1".into(), hostnames: Some(vec!["a".into(), "b.example".into()]) },
            HostAlias { ip: "::5".into(), hostnames: Some(vec!["c".into()]) },
        ]
    }

    #[test]
    fn a_pods_file_is_the_kubelets_byte_for_byte() {
        let ips = ["10.88.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        let want = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost \
                    ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\n\
                    fe00::2\tip6-allrouters\n10.88.0.2\tweb\nfd00::2\tweb\n\n# Entries added by HostAliases.\n\
                    10.0.0.1\ta\tb.example\n::5\tc\n";
        assert_eq!(hosts_file(&ips, "web", None, &aliases()), want);
    }

    #[test]
    fn a_domain_puts_the_full_name_first() {
        let file = hosts_file(&["10.88.0.2".parse().unwrap()], "web", Some("db.shop.svc"), &[]);
        assert!(file.ends_with("\n10.88.0.2\tweb.db.shop.svc\tweb\n"), "{file}");
    }

    #[test]
    fn on_the_hosts_network_the_hosts_own_file_is_kept_as_it_is() {
        let file = hosts_file_host_network(b"127.0.0.1 localhost # caf\xe9\n", &aliases()[1..]);
        let want = b"# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost # caf\xe9\n\n\
                     # Entries added by HostAliases.\n::5\tc\n";
        assert_eq!(file, want);
    }
}

//! The NAT rules that plugins leave in iptables, seen by sandbox.
//!
//! Firewall managers flush them at will, and no plugin puts them back; and where a network namespace vanished
//! without DEL the bridge plugin leaves its own behind. portmap's CHECK is of no use (1.1.1 looks for IPv6
//! rules of pods that have no IPv6), so this reads the table itself: one run of `iptables-save` for all pods.

use std::io;
use std::net::IpAddr;
use std::process::{Output, Stdio};

use sha2::{Digest, Sha512};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::ports::{PortMapping, Protocol};
use crate::system::programs::{find_program, search_path};

/// Chains that portmap makes once for all pods.
const DNAT: &str = "CNI-HOSTPORT-DNAT";
const TOP: [&str; 3] = [DNAT, "CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK"];

/// iptables said no.
#[derive(Debug, thiserror::Error)]
#[error("{program} failed: {message}")]
pub struct RulesError {
    program: &'static str,
    message: String,
}

/// IP version of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// iptables.
    V4,
    /// ip6tables.
    V6,
}

impl Family {
    /// That of an address.
    pub fn of(ip: &IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn save(self) -> &'static str {
        match self {
            Self::V4 => "iptables-save",
            Self::V6 => "ip6tables-save",
        }
    }

    fn restore(self) -> &'static str {
        match self {
            Self::V4 => "iptables-restore",
            Self::V6 => "ip6tables-restore",
        }
    }

    fn multicast(self) -> &'static str {
        match self {
            Self::V4 => "224.0.0.0/4",
            Self::V6 => "ff00::/8",
        }
    }
}

/// The `nat` table as `iptables-save` shows it.
#[derive(Clone, Debug)]
pub struct NatTable {
    family: Family,
    chains: Vec<String>,
    /// Rules without their `-A `: chain first.
    rules: Vec<String>,
}

impl NatTable {
    /// Reads the table; `None` where iptables is not installed.
    pub async fn read(family: Family) -> Result<Option<Self>, RulesError> {
        let program = family.save();
        if find_program(program).is_none() {
            return Ok(None);
        }
        let output = Command::new(program)
            .args(["-t", "nat"])
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await;
        Ok(Some(Self::parse(family, &checked(program, output)?)))
    }

    fn parse(family: Family, text: &str) -> Self {
        let mut table = Self { family, chains: Vec::new(), rules: Vec::new() };
        for line in text.lines() {
            if let Some(chain) = line.strip_prefix(':') {
                table.chains.extend(chain.split(' ').next().map(str::to_owned));
            } else if let Some(rule) = line.strip_prefix("-A ") {
                table.rules.push(rule.to_owned());
            }
        }
        table
    }

    fn of_sandbox(&self, sandbox: &str) -> impl Iterator<Item = &str> {
        // As iptables-save quotes the comments that plugins write.
        let mark = format!(r#"id: \"{sandbox}\""#);
        self.rules.iter().map(String::as_str).filter(move |rule| rule.contains(&mark))
    }

    fn in_chain(&self, chain: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{chain} ");
        self.rules.iter().map(String::as_str).filter(move |rule| rule.starts_with(&prefix))
    }

    /// Whether packets for all these host ports reach the sandbox.
    pub fn has_host_ports(&self, sandbox: &str, ports: &[PortMapping]) -> bool {
        let entered =
            ["PREROUTING", "OUTPUT"].iter().all(|from| self.in_chain(from).any(|r| target(r) == Some(DNAT)));
        let own: Vec<&str> =
            self.of_sandbox(sandbox).filter(|r| r.starts_with(DNAT)).filter_map(target).collect();
        let served = |port: &PortMapping| {
            own.iter().flat_map(|chain| self.in_chain(chain)).any(|rule| {
                target(rule) == Some("DNAT")
                    && value(rule, "--dport") == Some(&port.host_port.to_string())
                    && value(rule, "-p") == Some(protocol(port.protocol))
            })
        };
        let family = |port: &&PortMapping| port.host_ip.is_none_or(|ip| Family::of(&ip) == self.family);
        entered && ports.iter().filter(family).all(served)
    }

    /// Whether what the sandbox sends from `ip` to the world gets the host's address.
    pub fn has_masquerade(&self, sandbox: &str, ip: &IpAddr) -> bool {
        let source =
            |rule: &&str| value(rule, "-s").and_then(|s| s.split('/').next()) == Some(&ip.to_string());
        let mut entries = self.of_sandbox(sandbox).filter(|r| r.starts_with("POSTROUTING ")).filter(source);
        entries.any(|rule| {
            target(rule).is_some_and(|own| self.in_chain(own).any(|r| target(r) == Some("MASQUERADE")))
        })
    }

    /// Puts back what the bridge plugin made at ADD for `ip` in `subnet`, under the name by which its DEL looks
    /// for it.
    pub async fn add_masquerade(
        &self,
        network: &str,
        sandbox: &str,
        ip: &IpAddr,
        subnet: &str,
    ) -> Result<(), RulesError> {
        let chain = masquerade_chain(network, sandbox);
        let comment = format!(r#"-m comment --comment "name: \"{network}\" id: \"{sandbox}\"""#);
        let entry = format!("POSTROUTING -s {ip} {comment} -j {chain}");
        let mut script = format!(":{chain} - [0:0]\n");
        for old in self.of_sandbox(sandbox).filter(|r| target(r) == Some(&chain)) {
            script += &format!("-D {old}\n");
        }
        script += &format!("-A {chain} -d {subnet} {comment} -j ACCEPT\n");
        script += &format!("-A {chain} ! -d {} {comment} -j MASQUERADE\n", self.family.multicast());
        script += &format!("-A {entry}\n");
        self.apply(script).await
    }

    /// Removes all that is left of a sandbox whose namespace went without DEL.
    pub async fn remove_sandbox(&self, sandbox: &str) -> Result<(), RulesError> {
        match self.sandbox_removal(sandbox) {
            Some(script) => self.apply(script).await,
            None => Ok(()),
        }
    }

    fn sandbox_removal(&self, sandbox: &str) -> Option<String> {
        let own = |chain: &str| chain.starts_with("CNI-") && !TOP.contains(&chain);
        let rules: Vec<&str> = self.of_sandbox(sandbox).collect();
        let mut chains: Vec<&str> = rules.iter().filter_map(|r| target(r)).filter(|c| own(c)).collect();
        chains.sort_unstable();
        chains.dedup();
        let mut script = String::new();
        let shared = rules.iter().filter(|r| !chains.iter().any(|c| r.starts_with(&format!("{c} "))));
        shared.for_each(|rule| script += &format!("-D {rule}\n"));
        chains.iter().for_each(|chain| script += &format!("-F {chain}\n-X {chain}\n"));
        (!script.is_empty()).then_some(script)
    }

    /// Whether portmap's chains are there, and whether all pods in them are of networks that `ours` knows.
    pub fn host_port_chains(&self, ours: impl Fn(&str) -> bool) -> ChainsOwner {
        if !self.chains.iter().any(|c| c == DNAT) {
            return ChainsOwner::None;
        }
        let mut names = self.in_chain(DNAT).map(network_name).peekable();
        if names.peek().is_some() && names.all(|name| name.is_some_and(&ours)) {
            ChainsOwner::Ours
        } else {
            ChainsOwner::Others
        }
    }

    /// Removes portmap's chains if no pod uses them; true when they are gone.
    pub async fn remove_host_port_chains(&self) -> Result<bool, RulesError> {
        if self.in_chain(DNAT).next().is_some() {
            return Ok(false);
        }
        let present: Vec<&str> = TOP.into_iter().filter(|t| self.chains.iter().any(|c| c == t)).collect();
        let within = |rule: &str| present.iter().any(|c| rule.starts_with(&format!("{c} ")));
        let mut script = String::new();
        for rule in self.rules.iter().filter(|r| !within(r)) {
            if target(rule).is_some_and(|t| present.contains(&t)) {
                script += &format!("-D {rule}\n");
            }
        }
        present.iter().for_each(|chain| script += &format!("-F {chain}\n"));
        present.iter().for_each(|chain| script += &format!("-X {chain}\n"));
        if !script.is_empty() {
            self.apply(script).await?;
        }
        Ok(true)
    }

    /// Runs a script on the `nat` table: all of it or nothing.
    async fn apply(&self, script: String) -> Result<(), RulesError> {
        let program = self.family.restore();
        let failed = |e: io::Error| RulesError { program, message: e.to_string() };
        let mut child = Command::new(program)
            // Others hold the lock of legacy iptables for a moment, too.
            .args(["--noflush", "-w", "5"])
            .env("PATH", search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(format!("*nat\n{script}COMMIT\n").as_bytes()).await.map_err(failed)?;
        }
        checked(program, child.wait_with_output().await).map(drop)
    }
}

/// Who uses portmap's chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainsOwner {
    /// There are none.
    None,
    /// Only networks of podling.
    Ours,
    /// Somebody else, or nobody now: somebody else made them.
    Others,
}

fn checked(program: &'static str, output: io::Result<Output>) -> Result<String, RulesError> {
    let output = output.map_err(|e| RulesError { program, message: e.to_string() })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(RulesError { program, message })
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

fn value<'a>(rule: &'a str, option: &str) -> Option<&'a str> {
    let mut words = rule.split(' ').skip_while(|word| *word != option);
    words.next()?;
    words.next()
}

fn target(rule: &str) -> Option<&str> {
    value(rule, "-j")
}

fn network_name(rule: &str) -> Option<&str> {
    rule.split_once(r#"name: \""#)?.1.split_once(r#"\""#).map(|(name, _)| name)
}

/// The chain the CNI library names after a network and a container: `CNI-` and hex of SHA-512, 28 in all.
fn masquerade_chain(network: &str, sandbox: &str) -> String {
    let hash = hex::encode(Sha512::digest(format!("{network}{sandbox}")));
    format!("CNI-{}", &hash[..24])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = r#"*nat
:PREROUTING ACCEPT [0:0]
:CNI-DN-cbb34dd06954ae7602f49 - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:CNI-cbb34dd06954ae7602f49fb6 - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A POSTROUTING -s 10.99.0.2/32 -m comment --comment "name: \"podling\" id: \"abc\"" -j CNI-cbb34dd06954ae7602f49fb6
-A CNI-DN-cbb34dd06954ae7602f49 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.99.0.2:80
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"podling\" id: \"abc\"" -m multiport --dports 8080 -j CNI-DN-cbb34dd06954ae7602f49
-A CNI-cbb34dd06954ae7602f49fb6 -d 10.99.0.0/24 -m comment --comment "name: \"podling\" id: \"abc\"" -j ACCEPT
-A CNI-cbb34dd06954ae7602f49fb6 ! -d 224.0.0.0/4 -m comment --comment "name: \"podling\" id: \"abc\"" -j MASQUERADE
COMMIT
"#;

    fn table(text: &str) -> NatTable {
        NatTable::parse(Family::V4, text)
    }

    fn without(pattern: &str) -> NatTable {
        let kept: Vec<&str> = SAVED.lines().filter(|line| !line.contains(pattern)).collect();
        table(&kept.join("\n"))
    }

    fn port(host_port: u16) -> PortMapping {
        PortMapping { host_port, container_port: 80, protocol: Protocol::Tcp, host_ip: None }
    }

    #[test]
    fn the_chain_is_named_as_the_cni_library_names_it() {
        assert_eq!(masquerade_chain("podling", "abc"), "CNI-cbb34dd06954ae7602f49fb6");
    }

    #[test]
    fn host_ports_are_there_only_when_every_link_of_the_way_is() {
        assert!(table(SAVED).has_host_ports("abc", &[port(8080)]));
        assert!(!table(SAVED).has_host_ports("abd", &[port(8080)]));
        assert!(!table(SAVED).has_host_ports("abc", &[port(8080), port(8081)]));
        for link in ["-A PREROUTING", "-A OUTPUT", "-A CNI-HOSTPORT-DNAT", "-j DNAT"] {
            assert!(!without(link).has_host_ports("abc", &[port(8080)]), "{link}");
        }
    }

    #[test]
    fn the_masquerade_is_there_only_with_its_entry_and_its_chain() {
        let ip = "10.99.0.2".parse().unwrap();
        assert!(table(SAVED).has_masquerade("abc", &ip));
        assert!(!table(SAVED).has_masquerade("abc", &"10.99.0.3".parse().unwrap()));
        for link in ["-s 10.99.0.2/32", "-j MASQUERADE"] {
            assert!(!without(link).has_masquerade("abc", &ip), "{link}");
        }
    }

    #[test]
    fn removing_a_sandbox_touches_only_its_own() {
        let script = table(SAVED).sandbox_removal("abc").unwrap();
        assert_eq!(
            script,
            "-D POSTROUTING -s 10.99.0.2/32 -m comment --comment \"name: \\\"podling\\\" id: \\\"abc\\\"\" -j \
             CNI-cbb34dd06954ae7602f49fb6\n\
             -D CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"podling\\\" id: \\\"abc\\\"\" -m \
             multiport --dports 8080 -j CNI-DN-cbb34dd06954ae7602f49\n\
             -F CNI-DN-cbb34dd06954ae7602f49\n-X CNI-DN-cbb34dd06954ae7602f49\n\
             -F CNI-cbb34dd06954ae7602f49fb6\n-X CNI-cbb34dd06954ae7602f49fb6\n"
        );
        assert_eq!(table(SAVED).sandbox_removal("other"), None);
    }

    #[test]
    fn the_chains_are_ours_while_only_our_networks_use_them() {
        let ours = |name: &str| name == "podling";
        assert_eq!(table(SAVED).host_port_chains(ours), ChainsOwner::Ours);
        assert_eq!(table(SAVED).host_port_chains(|_| false), ChainsOwner::Others);
        assert_eq!(without("-A CNI-HOSTPORT-DNAT").host_port_chains(ours), ChainsOwner::Others);
        assert_eq!(table("*nat\n:PREROUTING ACCEPT\n").host_port_chains(ours), ChainsOwner::None);
    }
}

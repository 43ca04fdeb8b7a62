//! Putting back rules that something else on the host flushed.

use std::net::IpAddr;

use serde_json::Value;

use super::cni::{plugin_type, result_ips};
use super::rules::{Family, NatTable};
use super::state::{Known, Record};
use super::{Network, NetworkError, attachment, is_namespace};

impl Network {
    /// Looks at one sandbox's rules; true when some were lost and have been put back.
    pub async fn check(&self, sandbox_id: &str) -> Result<bool, NetworkError> {
        let tables = Tables::read().await?;
        self.check_with(sandbox_id, &tables).await
    }

    /// Looks at all sandboxes' rules with one look at the table; the ids of those repaired. One that fails is
    /// logged and does not keep the others from being looked at.
    pub async fn check_all(&self) -> Result<Vec<String>, NetworkError> {
        let ids = self.pending();
        if ids.is_empty() {
            return Ok(ids);
        }
        let tables = Tables::read().await?;
        let mut restored = Vec::new();
        for id in ids {
            match self.check_with(&id, &tables).await {
                Ok(true) => restored.push(id),
                Ok(false) => {}
                Err(error) => tracing::warn!(sandbox = %id, %error, "network rules cannot be put back"),
            }
        }
        Ok(restored)
    }

    async fn check_with(&self, sandbox: &str, tables: &Tables) -> Result<bool, NetworkError> {
        let lock = self.lock_of(sandbox);
        let _locked = lock.lock().await;
        let Known::Record(record) = self.records.load(sandbox)? else { return Ok(false) };
        let Some(result) = &record.result else { return Ok(false) };
        // A sandbox that is on its way out, or whose namespace is gone, needs no rules.
        if self.closing().contains(sandbox) || !is_namespace(&record.netns) {
            return Ok(false);
        }
        if !lost(sandbox, &record, result, tables) {
            return Ok(false);
        }
        // The tables may be older than the sandbox, whose ADD ended while its lock was waited for. A rule
        // that is put in twice keeps DEL from removing its chain.
        let tables = &Tables::read().await?;
        let ports = self.restore_host_ports(sandbox, &record, result, tables).await?;
        let masquerade = restore_masquerade(sandbox, &record, result, tables).await?;
        Ok(ports || masquerade)
    }

    async fn restore_host_ports(
        &self,
        sandbox: &str,
        record: &Record,
        result: &Value,
        tables: &Tables,
    ) -> Result<bool, NetworkError> {
        let Some(portmap) = lost_portmap(sandbox, record, result, tables) else { return Ok(false) };
        let to = attachment(sandbox, record, record.netns.display().to_string());
        // portmap begins by clearing the sandbox's own chain, so that ADD may be repeated.
        self.client.run("ADD", &record.network, portmap, &record.runtime, &to, Some(result)).await?;
        Ok(true)
    }
}

/// Whether any rule of the sandbox is missing in the tables.
fn lost(sandbox: &str, record: &Record, result: &Value, tables: &Tables) -> bool {
    lost_portmap(sandbox, record, result, tables).is_some()
        || lost_masquerade(sandbox, record, result, tables).next().is_some()
}

/// The plugin that makes the host ports' rules, where some are missing.
fn lost_portmap<'a>(sandbox: &str, record: &'a Record, result: &Value, tables: &Tables) -> Option<&'a Value> {
    let ports = &record.runtime.port_mappings;
    let portmap = record.network.plugins.iter().find(|p| plugin_type(p) == "portmap")?;
    if ports.is_empty() || !by_iptables(portmap, "backend") {
        return None;
    }
    let mut families: Vec<Family> = result_ips(result).iter().map(Family::of).collect();
    families.dedup();
    let lost = |family: &Family| tables.get(*family).is_some_and(|t| !t.has_host_ports(sandbox, ports));
    families.iter().any(lost).then_some(portmap)
}

/// Addresses, with their subnets and tables, whose traffic to the world lacks its rules.
fn lost_masquerade<'a>(
    sandbox: &'a str,
    record: &Record,
    result: &Value,
    tables: &'a Tables,
) -> impl Iterator<Item = (IpAddr, String, &'a NatTable)> {
    let masked = |p: &&Value| p["ipMasq"] == Value::Bool(true) && by_iptables(p, "ipMasqBackend");
    let known = |p: &&Value| matches!(plugin_type(p), "bridge" | "ptp");
    let wanted = record.network.plugins.iter().filter(known).any(|p| masked(&p));
    let all = if wanted { addresses(result) } else { Vec::new() };
    all.into_iter().filter_map(move |(ip, subnet)| {
        let table = tables.get(Family::of(&ip))?;
        (!table.has_masquerade(sandbox, &ip)).then_some((ip, subnet, table))
    })
}

/// The bridge plugin cannot be asked twice, as the interface exists: its rules are made here.
async fn restore_masquerade(
    sandbox: &str,
    record: &Record,
    result: &Value,
    tables: &Tables,
) -> Result<bool, NetworkError> {
    let mut restored = false;
    for (ip, subnet, table) in lost_masquerade(sandbox, record, result, tables) {
        table.add_masquerade(&record.network.name, sandbox, &ip, &subnet).await?;
        restored = true;
    }
    Ok(restored)
}

/// Newer plugins may be told to use nftables, whose rules are elsewhere.
fn by_iptables(plugin: &Value, setting: &str) -> bool {
    plugin[setting].as_str().is_none_or(|backend| backend == "iptables")
}

/// Addresses of the pod with their prefix lengths.
fn addresses(result: &Value) -> Vec<(IpAddr, String)> {
    let texts: Vec<&str> =
        result["ips"].as_array().into_iter().flatten().filter_map(|ip| ip["address"].as_str()).collect();
    let of = |ip: IpAddr| {
        let prefix = format!("{ip}/");
        texts.iter().find(|t| t.starts_with(&prefix)).map(|t| (ip, (*t).to_owned()))
    };
    result_ips(result).into_iter().filter_map(of).collect()
}

/// Both tables, read once.
struct Tables {
    v4: Option<NatTable>,
    v6: Option<NatTable>,
}

impl Tables {
    async fn read() -> Result<Self, NetworkError> {
        // IPv6 may be off, or its modules missing: no pod has such an address then.
        let v6 = NatTable::read(Family::V6).await.unwrap_or(None);
        Ok(Self { v4: NatTable::read(Family::V4).await?, v6 })
    }

    fn get(&self, family: Family) -> Option<&NatTable> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }
}

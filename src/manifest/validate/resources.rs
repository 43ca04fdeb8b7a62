//! Resource requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::words::{Refuse, is_qualified};
use crate::manifest::objects::Code;
use crate::manifest::positions::{Findings, Path};
use crate::manifest::quantity::Quantity;

type Quantities = BTreeMap<String, ApiQuantity>;

const HUGE_PAGES: &str = "hugepages-";
const FORM: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' (such as \
    500m, 1.5 or 64Mi)";

/// Checks the resources of a container or of a pod.
pub fn check(resources: &ResourceRequirements, path: &Path, findings: &mut Findings<'_>) {
    for (field, map) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for (name, quantity) in map.iter().flatten() {
            // What is requested because it is limited has been looked at already.
            if field == "requests" && resources.limits.as_ref().and_then(|l| l.get(name)) == Some(quantity) {
                continue;
            }
            let path = path.field(field).key(name);
            check_name(name, &path, findings);
            check_quantity(name, &quantity.0, field == "limits", &path, findings);
        }
    }
    let none = Quantities::new();
    let limits = resources.limits.as_ref().unwrap_or(&none);
    let requests = resources.requests.as_ref().unwrap_or(&none);
    compare(limits, requests, path, findings);
    let mut names = limits.keys().chain(requests.keys());
    if names.clone().any(|name| name.starts_with(HUGE_PAGES))
        && !names.any(|name| matches!(name.as_str(), "cpu" | "memory"))
    {
        findings
            .forbidden(path, "huge pages can only be had with cpu or memory; add a request of one of them");
    }
}

/// What only holds for the resources of a pod: some names, and room for its containers.
pub fn pod_level(spec: &PodSpec, resources: &ResourceRequirements, path: &Path, findings: &mut Findings<'_>) {
    for (field, map) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for (name, quantity) in map.iter().flatten() {
            let path = path.field(field).key(name);
            if !matches!(name.as_str(), "cpu" | "memory") && !name.starts_with(HUGE_PAGES) {
                findings.invalid(
                    &path,
                    name.as_str(),
                    "must be cpu, memory or hugepages-<size> for a whole pod",
                );
            }
            let Ok(most) = Quantity::parse(&quantity.0) else { continue };
            let of = |c: &Container| {
                let resources = c.resources.as_ref()?;
                let map = if field == "limits" { &resources.limits } else { &resources.requests };
                Quantity::parse(&map.as_ref()?.get(name)?.0).ok()
            };
            let own = spec.containers.iter().filter_map(of);
            let (sum, largest) =
                own.fold((Quantity::default(), Quantity::default()), |(sum, max), q| (sum + q, max.max(q)));
            if field == "requests" && sum > most {
                findings.invalid(
                    &path,
                    quantity.0.as_str(),
                    "must be greater than or equal to what the pod's containers request together",
                );
            } else if field == "limits" && largest > most {
                findings.invalid(
                    &path,
                    quantity.0.as_str(),
                    "must be greater than or equal to the limit of each of the pod's containers",
                );
            }
        }
    }
}

fn check_name(name: &str, path: &Path, findings: &mut Findings<'_>) {
    if !is_qualified(name) {
        findings.invalid(path, name, "must be a resource name such as cpu, memory or example.com/device");
    } else if !name.contains('/') && !is_standard(name) {
        findings.invalid(
            path,
            name,
            "must be a standard resource type (cpu, memory, ephemeral-storage, hugepages-<size>) or fully \
            qualified",
        );
    }
}

fn is_standard(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with(HUGE_PAGES)
}

/// What is never promised to more containers than it is there for.
fn is_given_out_whole(name: &str) -> bool {
    name.contains('/') || name.starts_with(HUGE_PAGES)
}

fn check_quantity(name: &str, text: &str, limit: bool, path: &Path, findings: &mut Findings<'_>) {
    match Quantity::parse(text) {
        Err(_) => findings.invalid(path, text, FORM),
        Ok(amount) if amount.is_negative() => {
            findings.invalid(path, text, "must be greater than or equal to 0")
        }
        Ok(amount) if name.contains('/') && !amount.is_whole() => {
            findings.invalid(path, text, "must be an integer");
        }
        // `128m` is a thousandth of 128 bytes; `128Mi` was meant.
        Ok(amount) if name == "memory" && !amount.is_whole() => {
            let bytes = amount.approximate();
            let hint = match text.strip_suffix('m') {
                Some(number) => format!("; did you mean {number}Mi?"),
                None => String::new(),
            };
            let what = if limit {
                "no container can start with so little"
            } else {
                "it is rounded up to whole bytes"
            };
            findings.warn(Code::NoEffect, path, format!("memory {text} is {bytes} bytes: {what}{hint}"));
        }
        Ok(_) => {}
    }
}

fn compare(limits: &Quantities, requests: &Quantities, path: &Path, findings: &mut Findings<'_>) {
    for (name, request) in requests {
        let request_path = path.field("requests").key(name);
        let (Ok(wanted), limit) = (Quantity::parse(&request.0), limits.get(name)) else { continue };
        match limit.map(|limit| (Quantity::parse(&limit.0), limit)) {
            Some((Ok(most), limit)) if wanted > most => {
                findings.invalid(
                    &request_path,
                    request.0.as_str(),
                    &format!("must be less than or equal to {name} limit of {}", limit.0),
                );
            }
            Some((Ok(most), limit)) if wanted != most && is_given_out_whole(name) => {
                findings.invalid(
                    &request_path,
                    request.0.as_str(),
                    &format!("must be equal to {name} limit of {}", limit.0),
                );
            }
            None if is_given_out_whole(name) => {
                let why = format!("must be set, to the {} that is requested", request.0);
                findings.required(&path.field("limits").key(name), &why);
            }
            _ => {}
        }
    }
}

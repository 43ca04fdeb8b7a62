//! Required node affinity: which nodes a pod may run on.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, PodSpec};

use super::words::{Refuse, one_of, qualified};
use crate::manifest::positions::{Findings, Path};

const OPERATORS: &[&str] = &["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"];

/// Checks the terms that a node must match.
pub fn check(spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let Some(required) =
        affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
    else {
        return;
    };
    let required_field = "requiredDuringSchedulingIgnoredDuringExecution";
    let at = path.field("affinity").field("nodeAffinity").field(required_field).field("nodeSelectorTerms");
    if required.node_selector_terms.is_empty() {
        findings.required(&at, "must have at least one node selector term");
    }
    for (i, term) in required.node_selector_terms.iter().enumerate() {
        let at = at.index(i);
        for (n, requirement) in term.match_expressions.iter().flatten().enumerate() {
            let at = at.field("matchExpressions").index(n);
            qualified(findings, &at.field("key"), &requirement.key);
            values(requirement, &at, findings);
        }
        for (n, requirement) in term.match_fields.iter().flatten().enumerate() {
            let at = at.field("matchFields").index(n);
            if requirement.key != "metadata.name" {
                findings.invalid(&at.field("key"), requirement.key.as_str(), "must be metadata.name");
            }
            values(requirement, &at, findings);
        }
    }
}

fn values(requirement: &NodeSelectorRequirement, path: &Path, findings: &mut Findings<'_>) {
    one_of(findings, &path.field("operator"), Some(&requirement.operator), OPERATORS);
    let values = requirement.values.as_deref().unwrap_or_default();
    let at = path.field("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            findings.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            findings.forbidden(&at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values.len() != 1 || values[0].parse::<i64>().is_err() => {
            findings.required(
                &at,
                "must be specified single value, a whole number, when `operator` is 'Lt' or 'Gt'",
            );
        }
        _ => {}
    }
}

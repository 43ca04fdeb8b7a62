//! imagePullPolicy.

/// A container's imagePullPolicy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PullPolicy {
    /// Pull at every start.
    Always,
    /// Pull what is absent.
    IfNotPresent,
    /// Never pull.
    Never,
}

impl PullPolicy {
    /// The policy of the API's name; none for any other.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "Always" => Some(Self::Always),
            "IfNotPresent" => Some(Self::IfNotPresent),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }
}

/// What a policy comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Use the image that is there.
    Use,
    /// Ask the registry, whatever is there.
    Check,
    /// It is not there and has to be pulled.
    Pull,
    /// It is not there and must not be pulled: `ErrImageNeverPull`.
    NeverPull,
}

/// Decides, as the kubelet does.
pub fn decide(policy: PullPolicy, present: bool) -> Decision {
    match (policy, present) {
        (PullPolicy::Always, true) => Decision::Check,
        (PullPolicy::IfNotPresent | PullPolicy::Never, true) => Decision::Use,
        (PullPolicy::Always | PullPolicy::IfNotPresent, false) => Decision::Pull,
        (PullPolicy::Never, false) => Decision::NeverPull,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_with_and_without_the_image() {
        use Decision::{Check, NeverPull, Pull, Use};
        for (name, present, absent) in
            [("Always", Check, Pull), ("IfNotPresent", Use, Pull), ("Never", Use, NeverPull)]
        {
            let policy = PullPolicy::from_name(name).unwrap();
            assert_eq!((decide(policy, true), decide(policy, false)), (present, absent), "{name}");
        }
        assert_eq!(PullPolicy::from_name("always"), None);
    }
}

//! imagePullPolicy, where nothing can be pulled.

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
    /// Use the image that is there, and say that it could not be checked for a newer one.
    UseStale,
    /// It is not there and would have to be pulled: `ErrImagePull`.
    Missing,
    /// It is not there and must not be pulled: `ErrImageNeverPull`.
    NeverPull,
}

/// Decides. An image that is there is used whatever the policy: a node without registry runs what it has.
pub fn decide(policy: PullPolicy, present: bool) -> Decision {
    match (policy, present) {
        (PullPolicy::Always, true) => Decision::UseStale,
        (PullPolicy::IfNotPresent | PullPolicy::Never, true) => Decision::Use,
        (PullPolicy::Always | PullPolicy::IfNotPresent, false) => Decision::Missing,
        (PullPolicy::Never, false) => Decision::NeverPull,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_with_and_without_the_image() {
        use Decision::{Missing, NeverPull, Use, UseStale};
        for (name, present, absent) in
            [("Always", UseStale, Missing), ("IfNotPresent", Use, Missing), ("Never", Use, NeverPull)]
        {
            let policy = PullPolicy::from_name(name).unwrap();
            assert_eq!((decide(policy, true), decide(policy, false)), (present, absent), "{name}");
        }
        assert_eq!(PullPolicy::from_name("always"), None);
    }
}

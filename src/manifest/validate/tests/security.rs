//! Names, profiles and user namespaces.

use super::{in_container, in_spec};

#[test]
fn a_name_over_the_others_and_profiles_follow_the_apis_rules() {
    in_spec(
        "hostnameOverride: A_b\nhostNetwork: true\nsetHostnameAsFQDN: true",
        &[
            "spec.hostnameOverride: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (such as 'example.com'), and have at most 253 characters",
            "spec.hostNetwork: Forbidden: when `hostnameOverride` is set",
            "spec.setHostnameAsFQDN: Forbidden: when `hostnameOverride` is set",
        ],
    );
    in_spec(
        "securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../a}}",
        &[
            "spec.securityContext.seccompProfile.localhostProfile: Invalid value: \"../a\": must not contain '..'",
        ],
    );
    in_spec(
        "securityContext: {seccompProfile: {type: Localhost, localhostProfile: /a}}",
        &[
            "spec.securityContext.seccompProfile.localhostProfile: Invalid value: \"/a\": must be a relative path",
        ],
    );
}

#[test]
fn a_user_namespace_excludes_devices_of_the_host() {
    let text = "spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false";
    let devices = "volumeDevices: [{name: v, devicePath: /dev/x}]";
    let spec = "hostUsers: false\nvolumes: [{name: v, persistentVolumeClaim: {claimName: c}}]";
    assert_eq!(super::refusals(spec, devices), [text]);
    in_container(
        "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: ' x'}}",
        &[
            "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Invalid value: \" x\": must not be padded with whitespace",
        ],
    );
}

#[test]
fn options_for_windows_are_refused_where_the_pod_says_it_is_for_linux() {
    in_spec(
        "os: {name: linux}\nsecurityContext: {windowsOptions: {runAsUserName: a}}\ninitContainers: [{name: i, image: i, securityContext: {windowsOptions: {hostProcess: true}}}]",
        &[
            "spec.securityContext.windowsOptions: Forbidden: may not be set for a pod whose `spec.os.name` is linux",
            "spec.initContainers[0].securityContext.windowsOptions: Forbidden: may not be set for a pod whose `spec.os.name` is linux",
        ],
    );
    in_spec("securityContext: {windowsOptions: {runAsUserName: a}}", &[]);
}

#[test]
fn a_readiness_gate_has_the_name_of_a_condition() {
    in_spec(
        "readinessGates: [{conditionType: a b}]",
        &[
            "spec.readinessGates[0].conditionType: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character, with an optional DNS subdomain prefix and '/' (such as 'example.com/MyName')",
        ],
    );
}

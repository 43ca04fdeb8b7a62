//! Probes and lifecycle hooks.

use super::Shape::{Int32, Int64, IntOrText, Objects, Text, Texts};
use super::{HONOURED, Lit, Object, Shape, f, refused, warned};

/// `Probe`.
pub static PROBE: Object = Object {
    name: "Probe",
    fields: &[
        f("exec", Shape::Object(&EXEC_ACTION), HONOURED),
        f("failureThreshold", Int32, HONOURED),
        f("grpc", Shape::Object(&GRPC_ACTION), HONOURED),
        f("httpGet", Shape::Object(&HTTP_GET_ACTION), HONOURED),
        f("initialDelaySeconds", Int32, HONOURED),
        f("periodSeconds", Int32, HONOURED),
        f("successThreshold", Int32, HONOURED),
        f("tcpSocket", Shape::Object(&TCP_SOCKET_ACTION), HONOURED),
        f("terminationGracePeriodSeconds", Int64, HONOURED),
        f("timeoutSeconds", Int32, HONOURED),
    ],
};

/// `Lifecycle`.
pub static LIFECYCLE: Object = Object {
    name: "Lifecycle",
    fields: &[
        f("postStart", Shape::Object(&LIFECYCLE_HANDLER), HONOURED),
        f("preStop", Shape::Object(&LIFECYCLE_HANDLER), HONOURED),
        f("stopSignal", Text, HONOURED),
    ],
};

/// `LifecycleHandler`.
pub static LIFECYCLE_HANDLER: Object = Object {
    name: "LifecycleHandler",
    fields: &[
        f("exec", Shape::Object(&EXEC_ACTION), HONOURED),
        f("httpGet", Shape::Object(&HTTP_GET_ACTION), HONOURED),
        f("sleep", Shape::Object(&SLEEP_ACTION), HONOURED),
        f(
            "tcpSocket",
            Shape::Object(&TCP_SOCKET_ACTION),
            warned(
                "hooks that connect to a socket are not run, by no kubelet either; use exec, httpGet or sleep",
            ),
        ),
    ],
};

/// `ExecAction`.
pub static EXEC_ACTION: Object = Object { name: "ExecAction", fields: &[f("command", Texts, HONOURED)] };

/// `HTTPGetAction`.
pub static HTTP_GET_ACTION: Object = Object {
    name: "HTTPGetAction",
    fields: &[
        f("host", Text, HONOURED),
        f("httpHeaders", Objects(&HTTP_HEADER), HONOURED),
        f("path", Text, HONOURED),
        f("port", IntOrText, HONOURED),
        f("protocol", Text, refused("probes and hooks speak HTTP/1.1; leave it out"))
            .but(&[(Lit::Text("HTTP1"), HONOURED), (Lit::Text("HTTP/1.1"), HONOURED)]),
        f("scheme", Text, HONOURED),
    ],
};

/// `HTTPHeader`.
pub static HTTP_HEADER: Object =
    Object { name: "HTTPHeader", fields: &[f("name", Text, HONOURED), f("value", Text, HONOURED)] };

/// `GRPCAction`.
pub static GRPC_ACTION: Object = Object {
    name: "GRPCAction",
    fields: &[f("mode", Text, HONOURED), f("port", Int32, HONOURED), f("service", Text, HONOURED)],
};

/// `SleepAction`.
pub static SLEEP_ACTION: Object = Object { name: "SleepAction", fields: &[f("seconds", Int64, HONOURED)] };

/// `TCPSocketAction`.
pub static TCP_SOCKET_ACTION: Object =
    Object { name: "TCPSocketAction", fields: &[f("host", Text, HONOURED), f("port", IntOrText, HONOURED)] };

//! Network links: the two requests podling makes itself, so that it needs no `ip` command.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Longest name of a network interface, with its final NUL (`IFNAMSIZ`).
const NAME_SIZE: usize = libc::IFNAMSIZ;
/// `SIOCBRDELBR` of `linux/sockios.h`: delete a bridge by name.
const SIOCBRDELBR: libc::c_ulong = 0x89a1;

/// True when an interface of this name exists in the network namespace of the calling thread.
pub fn exists(name: &str) -> io::Result<bool> {
    match flags(&control_socket()?, name) {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Takes a bridge down and deletes it; one that is not there is fine. Fails with `EOPNOTSUPP` or `EPERM` when
/// the interface is no bridge.
pub fn delete_bridge(name: &str) -> io::Result<()> {
    let socket = control_socket()?;
    let result = set_down(&socket, name).and_then(|()| delete(&socket, name));
    match result {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => Ok(()),
        other => other,
    }
}

fn control_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

fn name_bytes(name: &str) -> io::Result<[libc::c_char; NAME_SIZE]> {
    if name.is_empty() || name.len() >= NAME_SIZE || name.bytes().any(|b| b == 0) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut bytes = [0; NAME_SIZE];
    for (to, from) in bytes.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(bytes)
}

fn request(name: &str, flags: libc::c_short) -> io::Result<libc::ifreq> {
    Ok(libc::ifreq {
        ifr_name: name_bytes(name)?,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags },
    })
}

fn flags(socket: &OwnedFd, name: &str) -> io::Result<libc::c_short> {
    let mut request = request(name, 0)?;
    // SAFETY: the descriptor is open, and `request` is a valid ifreq that the kernel reads the name from and
    // writes the flags to.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCGIFFLAGS succeeded, so the flags are the field of the union that is set.
    Ok(unsafe { request.ifr_ifru.ifru_flags })
}

fn set_down(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let up = libc::IFF_UP as libc::c_short;
    let request = request(name, flags(socket, name)? & !up)?;
    // SAFETY: the descriptor is open, and `request` is a valid ifreq with name and flags set, only read.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn delete(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let name = name_bytes(name)?;
    // SAFETY: the descriptor is open, and the kernel reads a NUL-terminated name of at most IFNAMSIZ bytes.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCBRDELBR, name.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_exists_and_a_made_up_name_does_not() {
        assert!(exists("lo").unwrap());
        assert!(!exists("no-such-link").unwrap());
    }

    #[test]
    fn deleting_a_bridge_that_is_gone_is_fine_and_a_name_too_long_is_refused() {
        delete_bridge("no-such-link").unwrap();
        assert_eq!(delete_bridge("a-name-of-16-byt").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

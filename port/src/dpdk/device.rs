//! A queue of a DPDK device, over `shim.c`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Arc, Mutex, OnceLock};

use conic_fabric::Time;

use super::{DpdkError, DpdkOptions, DpdkProblem};
use crate::{Counters, MAX_FRAME, Port, PortError, Receive, Transmit};

/// A queue, as `shim.c` has it.
#[repr(C)]
struct Queue {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn conic_dpdk_start(count: c_int, arguments: *mut *mut c_char) -> c_int;
    fn conic_dpdk_find(device: *const c_char) -> c_int;
    fn conic_dpdk_configure(port: u16, queues: u16, slots: u16, made: *mut *mut Queue) -> c_int;
    fn conic_dpdk_receive(queue: *mut Queue, frame: *mut u8, room: u32) -> u32;
    fn conic_dpdk_transmit(queue: *mut Queue, frame: *const u8, length: u32) -> c_int;
    fn conic_dpdk_flush(queue: *mut Queue) -> u16;
    fn conic_dpdk_link(queue: *const Queue) -> c_int;
    fn conic_dpdk_statistics(queue: *const Queue, values: *mut u64) -> c_int;
    fn conic_dpdk_close(queue: *mut Queue, last: c_int);
    fn conic_dpdk_error(error: c_int) -> *const c_char;
}

/// Whether DPDK has been started, and what it said if it was not.
static STARTED: OnceLock<Result<(), i32>> = OnceLock::new();
/// Devices are found and configured one after the other: DPDK's control path is for one thread.
static CONTROL: Mutex<()> = Mutex::new(());

/// A queue of a DPDK device.
pub struct Dpdk {
    queue: *mut Queue,
    /// The last of its device's queues to go stops the device.
    device: Arc<String>,
    counters: Counters,
}

// SAFETY: a queue is used by one thread at a time, which DPDK allows to be any thread.
unsafe impl Send for Dpdk {}

impl std::fmt::Debug for Dpdk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dpdk").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Dpdk {
    /// Opens a device with all its queues; at least one.
    ///
    /// # Errors
    /// DPDK does not start, has no such device, or the device refuses.
    pub fn open_queues(options: &DpdkOptions) -> Result<Vec<Dpdk>, PortError> {
        let failed = |problem| PortError::from(DpdkError { device: options.device.clone(), problem });
        let said = |code| text(code);
        let Ok(device) = CString::new(options.device.clone()) else { return Err(failed(DpdkProblem::Name)) };
        let started = *STARTED.get_or_init(|| start(options));
        started.map_err(|code| failed(DpdkProblem::Start(said(code))))?;
        let _control = CONTROL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: DPDK is started; the text outlives the call.
        let port = unsafe { conic_dpdk_find(device.as_ptr()) };
        let port = u16::try_from(port).map_err(|_| failed(DpdkProblem::Device(said(port))))?;
        let count = options.queues.max(1);
        let mut queues = vec![std::ptr::null_mut(); count];
        // SAFETY: there is room for as many queues as are asked for.
        let result = unsafe { conic_dpdk_configure(port, count as u16, options.frames as u16, queues.as_mut_ptr()) };
        if result < 0 {
            return Err(failed(DpdkProblem::Configure(said(result))));
        }
        let device = Arc::new(options.device.clone());
        let queue = |queue| Dpdk { queue, device: device.clone(), counters: Counters::default() };
        Ok(queues.into_iter().map(queue).collect())
    }
}

fn text(code: i32) -> String {
    // SAFETY: DPDK gives a text that stays until this thread asks again.
    unsafe { CStr::from_ptr(conic_dpdk_error(code)) }.to_string_lossy().into_owned()
}

fn start(options: &DpdkOptions) -> Result<(), i32> {
    let memory = options.megabytes.to_string();
    let mut arguments = vec!["conic", "--no-telemetry", "-m", &memory];
    // In memory alone: nothing is left behind, and no other DPDK program is met.
    arguments.extend_from_slice(if options.huge_pages { &["--in-memory"] } else { &["--no-huge", "--no-shconf"] });
    if !options.is_pci() {
        arguments.push("--no-pci");
    }
    let texts: Vec<CString> = arguments.iter().filter_map(|argument| CString::new(*argument).ok()).collect();
    let mut pointers: Vec<*mut c_char> = texts.iter().map(|text| text.as_ptr().cast_mut()).collect();
    // DPDK keeps and reorders them, and may look at them later.
    let count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    std::mem::forget(texts);
    // SAFETY: the texts are never freed, the list of them outlives the call, which is the first and only one.
    match unsafe { conic_dpdk_start(count, pointers.leak().as_mut_ptr()) } {
        0 => Ok(()),
        code => Err(code),
    }
}

impl Port for Dpdk {
    fn receive(&mut self, _now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        let limit = frame.len().min(MAX_FRAME);
        // SAFETY: the queue is ours, and the frame has the room that is said.
        let length = unsafe { conic_dpdk_receive(self.queue, frame.as_mut_ptr(), limit as u32) } as usize;
        if length == 0 {
            return Ok(Receive::None);
        }
        if length > limit {
            self.counters.skipped_oversized += 1;
            return Ok(Receive::Skipped);
        }
        Ok(self.counters.receive_frame(frame, length))
    }

    fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if self.counters.refuse_length(frame) {
            return Ok(Transmit::Refused);
        }
        // SAFETY: the queue is ours; the frame is read during the call only.
        if unsafe { conic_dpdk_transmit(self.queue, frame.as_ptr(), frame.len() as u32) } == 0 {
            self.counters.transmit_full += 1;
            return Ok(Transmit::Full);
        }
        self.counters.count_transmitted(frame.len());
        Ok(Transmit::Accepted)
    }

    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        // What is left leaves with the next flush, or with a transmit that finds no room.
        // SAFETY: the queue is ours.
        unsafe { conic_dpdk_flush(self.queue) };
        Ok(())
    }

    /// At once: a DPDK device is polled, and nothing wakes whoever sleeps.
    fn next_due(&self) -> Option<Time> {
        Some(Time::ZERO)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        const NAMES: [&str; 6] = [
            "device_received",
            "device_transmitted",
            "device_missed",
            "device_receive_errors",
            "device_transmit_errors",
            "device_no_buffer",
        ];
        let mut values = [0; 6];
        // SAFETY: the queue is ours, and there is room for six values.
        unsafe { conic_dpdk_statistics(self.queue, values.as_mut_ptr()) };
        NAMES.into_iter().zip(values).collect()
    }

    fn is_up(&self) -> bool {
        // SAFETY: the queue is ours.
        unsafe { conic_dpdk_link(self.queue) != 0 }
    }

    fn description(&self) -> String {
        format!("DPDK device {}", self.device)
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.flush(Time::ZERO)
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        let _control = CONTROL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let last = Arc::into_inner(std::mem::take(&mut self.device)).is_some();
        // SAFETY: the queue is ours and is not used again; with the last one nobody uses the device.
        unsafe { conic_dpdk_close(self.queue, c_int::from(last)) };
    }
}

package doctor

// Probe is the script that tries the commands of the locks' scripts.
const Probe = probe

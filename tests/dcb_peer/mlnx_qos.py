"""A program that behaves as mlnx_qos (mlnx-tools) does, on the ports of the file that DCB_PEER names: without a change it prints the
port's state in that program's words. It keeps what it is told, as far as `tensorwire configure` tells it anything; the rest it refuses.

What it follows are mlnx_qos's help text and public output; the program itself was never seen here. As there, --trust dscp makes an
entry for each DSCP (code >> 3), and --trust pcp takes all away."""
import argparse
import fcntl
import os
import sys

DSCP = 5
TSA = {"strict": 0, "ets": 2, "vendor": 255}
HOST = 1


class Port:
    """The lines of one interface in the file, which is locked for as long as the program runs."""

    def __init__(self, path, interface):
        self.file = open(path, "r+")
        fcntl.flock(self.file, fcntl.LOCK_EX)
        self.before, self.lines, self.after = [], {}, []
        self.apps = {}
        self.changed = False
        found = done = False
        for line in self.file.read().splitlines():
            key, _, value = line.partition(" ")
            if key == "interface":
                done = found
                found = found or value == interface
            if not found:
                self.before.append(line)
            elif done:
                self.after.append(line)
            elif key == "app":
                selector, code, priority = map(int, value.split())
                self.apps[selector, code] = priority
            else:
                self.lines[key] = value.strip()
        if not found:
            sys.exit(f"Interface {interface} doesn't exist or is not supported")

    def numbers(self, key):
        return list(map(int, self.lines[key].split()))

    def change(self, key, value):
        self.changed = True
        left = int(self.lines.get("fail-at", 0))
        if left > 0:
            self.lines["fail-at"] = str(left - 1)
            if left == 1:
                self.write()
                sys.exit("Netlink error: Cannot allocate memory")
        if key == "pfc" and value != self.lines["pfc"]:
            self.lines["link-flaps"] = str(int(self.lines.get("link-flaps", 0)) + 1)
        if key != "apps":
            self.lines[key] = value

    def write(self):
        text = self.before + [f"{key} {value}" for key, value in self.lines.items()]
        text += [f"app {selector} {code} {priority}" for (selector, code), priority in self.apps.items()] + self.after
        self.file.seek(0)
        self.file.truncate()
        self.file.write("\n".join(text) + "\n")
        self.file.flush()

    def dscps(self):
        return {code: priority for (selector, code), priority in self.apps.items() if selector == DSCP}

    def show(self):
        dscps = self.dscps()
        print("DCBX mode: " + ("OS controlled" if int(self.lines["dcbx"]) & HOST else "Firmware controlled"))
        print("Priority trust state: " + ("dscp" if dscps else "pcp"))
        if dscps:
            print("dscp2prio mapping:")
            for priority in range(8):
                codes = sorted((code for code, to in dscps.items() if to == priority), reverse=True)
                for at in range(0, len(codes), 8):
                    print(f"\tprio:{priority} dscp:" + "".join(f"{code:02}," for code in codes[at:at + 8]))
        enabled = self.numbers("pfc")[1]
        print("PFC configuration:\n\tpriority    " + "   ".join(map(str, range(8))))
        print("\tenabled     " + "   ".join(str(enabled >> p & 1) for p in range(8)) + "   ")
        classes = self.numbers("prio-tc")
        algorithms, shares = self.numbers("tc-tsa"), self.numbers("tc-bw")
        for tc in sorted(set(classes)):
            share = f", bw: {shares[tc]}%" if TSA["ets"] == algorithms[tc] else ""
            print(f"tc: {tc} ratelimit: unlimited, tsa: {next(n for n, v in TSA.items() if v == algorithms[tc])}{share}")
            for priority in (p for p in range(8) if classes[p] == tc):
                print(f"\t priority:  {priority}")


def eight(text):
    numbers = list(map(int, text.split(",")))
    if len(numbers) != 8:
        raise argparse.ArgumentTypeError("a list of 8 numbers")
    return numbers


def eight_algorithms(text):
    words = text.split(",")
    if len(words) != 8 or any(word not in TSA for word in words):
        raise argparse.ArgumentTypeError("a list of 8 of strict, ets, vendor")
    return [TSA[word] for word in words]


def set_ets(port, wish):
    """All of it in one message to the driver, as the program does; mlx5 wants shares that make up the whole."""
    classes = wish.prio_tc or port.numbers("prio-tc")
    algorithms = wish.tsa or port.numbers("tc-tsa")
    shares = wish.tcbw or port.numbers("tc-bw")
    of_ets = [share for share, algorithm in zip(shares, algorithms) if algorithm == TSA["ets"]]
    if of_ets and sum(of_ets) != 100:
        sys.exit("Netlink error: Invalid argument")
    port.change("prio-tc", " ".join(map(str, classes)))
    port.lines["tc-tsa"] = " ".join(map(str, algorithms))
    port.lines["tc-bw"] = " ".join(map(str, shares))


def main():
    parser = argparse.ArgumentParser(prog="mlnx_qos")
    parser.add_argument("-i", "--interface", required=True)
    parser.add_argument("-d", "--dcbx", choices=("os", "fw"))
    parser.add_argument("--trust", choices=("dscp", "pcp"))
    parser.add_argument("--dscp2prio")
    parser.add_argument("-p", "--prio_tc", type=eight)
    parser.add_argument("-s", "--tsa", type=eight_algorithms)
    parser.add_argument("-t", "--tcbw", type=eight)
    parser.add_argument("-f", "--pfc", type=eight)
    wish = parser.parse_args()
    if wish.trust and wish.dscp2prio:
        sys.exit("--trust and --dscp2prio cannot be used together")
    port = Port(os.environ["DCB_PEER"], wish.interface)
    if wish.dcbx:
        mode = int(port.lines["dcbx"])
        port.change("dcbx", str(mode | HOST if wish.dcbx == "os" else mode & ~HOST))
    if wish.trust and (wish.trust == "dscp") != bool(port.dscps()):
        port.change("apps", None)
        port.apps = {key: priority for key, priority in port.apps.items() if key[0] != DSCP}
        port.apps.update({(DSCP, code): code >> 3 for code in range(64)} if wish.trust == "dscp" else {})
    if wish.dscp2prio:
        verb, code, priority = wish.dscp2prio.split(",")
        port.change("apps", None)
        if verb == "set":
            port.apps[DSCP, int(code)] = int(priority)
        elif port.apps.get((DSCP, int(code))) == int(priority):
            del port.apps[DSCP, int(code)]
    if wish.prio_tc or wish.tsa or wish.tcbw:
        set_ets(port, wish)
    if wish.pfc:
        capable, _, delay = port.numbers("pfc")
        port.change("pfc", f"{capable} {sum(1 << p for p in range(8) if wish.pfc[p])} {delay}")
    if port.changed:
        port.write()
    port.show()


if __name__ == "__main__":
    main()

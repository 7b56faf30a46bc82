#!/usr/bin/env python3
"""A driver of the example cloud: README.md is the protocol. Its first argument is the program examplecloud, which it starts."""
import json
import subprocess
import sys
import urllib.error
import urllib.request

FAULTS = {"conflict": "busy"}  # the only effect with another name
SUBJECTS = {"server": "instances", "load-balancer": "load-balancers", "route": "routes"}
ABOUT = {resource: subject for subject, resource in SUBJECTS.items()}


class Failure(Exception):
    """An error: a code of the protocol, and a message."""


class Driver:
    """One cloud. Each method of the protocol is a method here, with its parameters."""

    def http(self, method, path, body=None, control=False):
        """Sends a request to the cloud and returns the answer."""
        request = urllib.request.Request((self.where["control"] if control else self.where["endpoint"]) + path, method=method)
        request.add_header("Authorization", "Bearer " + self.where["token"])
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Failure("not-found" if error.code == 404 else "failed", json.load(error)["error"]["message"]) from error

    def Describe(self, protocol):
        return {"protocol": 1, "interfaces": ["Renamer", "Router", "Recorder", "Faulty", "Limiter", "Dumper"]}

    def Start(self, providerPrefix, userAgent, servers, loadBalancers, **_):
        self.prefix, self.agent = providerPrefix or "example://", userAgent or "example-ccm"
        self.cloud = subprocess.Popen(
            [sys.argv[1], "--until-stdin-closes", "--instances", servers, "--load-balancers", loadBalancers],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr)
        self.where = json.loads(self.cloud.stdout.readline())
        return {"ccm": {"env": {"EXAMPLE_ENDPOINT": self.where["endpoint"], "EXAMPLE_TOKEN": self.where["token"]}}}

    def Open(self, **_):
        raise Failure("unsupported", "the example cloud is in memory: use Start")

    def Close(self):
        self.cloud.stdin.close()
        self.cloud.wait()

    def server(self, i):
        return {"id": i["id"], "name": i["name"], "providerID": f'{self.prefix}{i["zone"]}/{i["id"]}', "type": i["size"],
                "region": i["region"], "zone": i["zone"], "running": i["state"] == "running", "local": i["public_ip"],
                "addresses": [{"type": "InternalIP", "address": i["private_ip"]}, {"type": "ExternalIP", "address": i["public_ip"]}]}

    def CreateServer(self, name):
        return self.server(self.http("POST", "/instances", {"name": name})["instance"])

    def DeleteServer(self, id):
        self.http("DELETE", "/instances/" + id)

    def StopServer(self, id):
        self.http("PATCH", "/instances/" + id, {"state": "stopped"})

    def StartServer(self, id):
        self.http("PATCH", "/instances/" + id, {"state": "running"})

    def RenameServer(self, id, name):
        self.http("PATCH", "/instances/" + id, {"name": name})

    def Servers(self):
        return [self.server(i) for i in self.http("GET", "/instances")["instances"]]

    def LoadBalancers(self):
        listeners = self.http("GET", "/listeners")["listeners"]
        return [{"id": b["id"], "name": b["name"], "addresses": [b["address"]] if b["address"] else [], "ports": [
            self.port(li) for li in listeners if li["load_balancer"] == b["name"]
        ]} for b in self.http("GET", "/load-balancers")["load_balancers"]]

    def port(self, listener):
        backends = [b.rsplit(":", 1) for b in listener["backends"]]
        return {"protocol": "TCP", "port": listener["port"], "nodePort": int(backends[0][1]) if backends else 0,
                "targets": [{"address": address, "health": "unknown"} for address, _ in backends]}

    def DeleteLoadBalancer(self, id):
        for b in self.http("GET", "/load-balancers")["load_balancers"]:
            if b["id"] == id:
                for li in self.http("GET", "/listeners?load_balancer=" + b["name"])["listeners"]:
                    self.http("DELETE", "/listeners/" + li["id"])
                return self.http("DELETE", "/load-balancers/" + b["name"])
        raise Failure("not-found", "there is not a load balancer " + id)

    def Routes(self):
        return [{"destination": r["prefix"], "server": r["instance"]} for r in self.http("GET", "/routes")["routes"]]

    def AddRoute(self, route):
        if not route.get("server"):
            raise Failure("unsupported", "routes lead to instances")
        self.http("PUT", "/routes/" + route["destination"], {"instance": route["server"]})

    def DeleteRoute(self, route):
        self.http("DELETE", f'/routes/{route["destination"]}?instance={route.get("server", "")}')

    def Requests(self, after):
        return [{"seq": r["seq"], "time": r["time"], "write": r["write"], "about": ABOUT.get(r.get("about"), "other"),
                 "id": r.get("id", ""), "text": r["text"], "kind": r["kind"]}
                for r in self.http("GET", f"/requests?after={after}", control=True)["requests"] if self.agent in r["user_agent"]]

    def AddFault(self, fault):
        calls, about = fault.get("calls"), fault.get("about")
        try:
            return self.http("POST", "/faults", {
                "user_agent": self.agent, "effect": FAULTS.get(fault["effect"], fault["effect"]), "first": fault.get("first", 0),
                "pass": fault.get("pass", 0),
                "reads": calls == "read", "writes": calls == "write", "about": SUBJECTS.get(about, about) or ""}, control=True)["name"]
        except Failure as failure:
            raise Failure("unsupported", failure.args[1]) from failure

    def Met(self, name):
        for fault in self.http("GET", "/faults", control=True)["faults"]:
            if fault["name"] == name:
                return fault.get("met", 0)
        raise Failure("not-found", "there is not a fault " + name)

    def RemoveFault(self, name):
        self.http("DELETE", "/faults/" + name, control=True)

    def Dump(self):
        return json.dumps({"servers": self.Servers(), "loadBalancers": self.LoadBalancers(), "routes": self.Routes()}, indent=1)

    def LimitLoadBalancers(self, most):
        self.http("PUT", "/limit", {"most": most}, control=True)


def main():
    driver = Driver()
    for line in sys.stdin:  # one call at a time; the protocol allows more
        call = json.loads(line)
        answer = {"id": call["id"]}
        try:
            answer["result"] = getattr(driver, call["method"])(**call["params"])
        except Failure as failure:
            answer["error"] = {"code": failure.args[0], "message": failure.args[1]}
        except Exception as error:  # every call needs an answer
            answer["error"] = {"code": "failed", "message": f'{call["method"]}: {error!r}'}
        print(json.dumps(answer), flush=True)


main()

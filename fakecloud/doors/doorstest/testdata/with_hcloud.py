import hcloud, os, requests

print([s.name for s in hcloud.Client(token=os.environ["HCLOUD_TOKEN"]).servers.get_all()])
try:
    requests.get("https://example.com")
except requests.exceptions.ProxyError as e:
    print(e)

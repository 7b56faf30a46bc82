import os, urllib.request

bearer = {"Authorization": "Bearer " + os.environ["HCLOUD_TOKEN"]}
print(urllib.request.urlopen(urllib.request.Request("https://api.hetzner.cloud/v1/servers", headers=bearer)).read().decode())
try:
    urllib.request.urlopen("https://example.com")
except OSError as e:
    print(e)

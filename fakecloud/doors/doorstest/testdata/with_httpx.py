import httpx, os

bearer = {"Authorization": "Bearer " + os.environ["HCLOUD_TOKEN"]}
print(httpx.get("https://api.hetzner.cloud/v1/servers", headers=bearer).text)
try:
    httpx.get("https://example.com")
except httpx.ProxyError as e:
    print(e)

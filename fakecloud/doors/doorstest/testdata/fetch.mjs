const bearer = {headers: {Authorization: "Bearer " + process.env.HCLOUD_TOKEN}};
console.log(await (await fetch("https://api.hetzner.cloud/v1/servers", bearer)).text());
await fetch("https://example.com").catch(e => console.log(e.cause?.message || e.message));

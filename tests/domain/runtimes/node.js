// Node.js at work: HTTP, worker_threads, child_process, fs.watch, timers, crypto, files, sockets.
const {Worker,isMainThread,parentPort,workerData}=require('worker_threads');
const TMP=process.env.TMPDIR||'/tmp';
const http=require('http'),fs=require('fs'),cp=require('child_process'),crypto=require('crypto'),os=require('os'),zlib=require('zlib'),assert=require('assert');
const util=require('util');
if(!isMainThread){let x=0;for(let i=0;i<workerData.n;i++)x=(x+i*i)%1000003;const s=new Int32Array(workerData.sab);Atomics.add(s,0,1);Atomics.notify(s,0);parentPort.on('message',m=>{parentPort.postMessage({echo:m,x});parentPort.close()});return}
const mark=n=>console.log('ok '+n);
async function server(){
 const srv=http.createServer((q,r)=>{let b=[];q.on('data',d=>b.push(d));q.on('end',()=>{const d=Buffer.concat(b);r.setHeader('x-len',d.length);r.end(crypto.createHash('sha256').update(d).digest('hex'))})});
 await new Promise(r=>srv.listen(0,'127.0.0.1',r));const port=srv.address().port;
 const agent=new http.Agent({keepAlive:true,maxSockets:16});
 const one=i=>new Promise((ok,no)=>{const body=Buffer.alloc(1000+i*37,i&255);const q=http.request({port,host:'127.0.0.1',method:'POST',agent},r=>{let s='';r.on('data',d=>s+=d);r.on('end',()=>{assert.equal(s,crypto.createHash('sha256').update(body).digest('hex'));ok()})});q.on('error',no);q.end(body)});
 for(let k=0;k<10;k++)await Promise.all(Array.from({length:100},(_,i)=>one(i+k*100)));
 agent.destroy();srv.close();mark('http');
}
async function workers(){
 const sab=new SharedArrayBuffer(8);
 const rs=await Promise.all([1,2,3,4].map(i=>new Promise((ok,no)=>{const w=new Worker(__filename,{workerData:{n:1000000,sab}});w.on('error',no);w.on('message',ok);w.postMessage({i})})));
 assert.equal(new Set(rs.map(r=>r.x)).size,1);assert.equal(new Int32Array(sab)[0],4);mark('worker_threads');
}
async function children(){
 assert.equal(cp.execSync('echo hi | cat',{encoding:'utf8'}),'hi\n');
 const r=await util.promisify(cp.execFile)(process.execPath,['-e','console.log(6*7)']);assert.equal(r.stdout,'42\n');
 const c=cp.spawn('cat');let s='';c.stdout.on('data',d=>s+=d);c.stdin.end('x'.repeat(300000));await new Promise(r=>c.on('close',r));assert.equal(s.length,300000);
 const k=cp.spawn('sleep',['100']);setTimeout(()=>k.kill('SIGTERM'),20);const [,sig]=await new Promise(r=>k.on('exit',(a,b)=>r([a,b])));assert.equal(sig,'SIGTERM');
 fs.writeFileSync(TMP+'/ipc.js',"process.on('message',m=>{process.send(m*2);process.disconnect()})");
 const f=cp.fork(TMP+'/ipc.js');f.send(21);assert.equal(await new Promise(r=>f.on('message',r)),42);
 mark('child_process');
}
async function watch(){
 fs.mkdirSync(TMP+'/w',{recursive:true});const ev=[];const w=fs.watch(TMP+'/w',(t,n)=>ev.push(t+':'+n));
 fs.writeFileSync(TMP+'/w/a','1');await new Promise(r=>setTimeout(r,50));fs.appendFileSync(TMP+'/w/a','2');fs.renameSync(TMP+'/w/a',TMP+'/w/b');fs.unlinkSync(TMP+'/w/b');
 for(let i=0;i<3000&&!ev.includes('rename:b');i++)await new Promise(r=>setTimeout(r,20));w.close();
 assert(ev.includes('rename:a')&&ev.includes('change:a')&&ev.includes('rename:b'),ev.join());mark('fs.watch');
}
async function timers(){
 const t=process.hrtime.bigint();const order=[];await Promise.all([30,10,20].map(n=>new Promise(r=>setTimeout(()=>{order.push(n);r()},n))));
 assert.deepEqual(order,[10,20,30]);const d=Number(process.hrtime.bigint()-t)/1e6;assert(d>=29&&d<3000,'took '+d);
 let n=0;await new Promise(r=>{const i=setInterval(()=>{if(++n==20){clearInterval(i);r()}},1)});mark('timers');
}
async function cryp(){
 const k=crypto.generateKeyPairSync('rsa',{modulusLength:1024});const s=crypto.sign('sha256',Buffer.from('a'),k.privateKey);assert(crypto.verify('sha256',Buffer.from('a'),k.publicKey,s));
 const h=await util.promisify(crypto.pbkdf2)('p','s',20000,32,'sha512');assert.equal(h.length,32);
 const a=await Promise.all([1,2,3,4].map(()=>util.promisify(crypto.scrypt)('p','s',32)));assert(a.every(x=>x.equals(a[0])));
 assert.equal(crypto.randomBytes(100000).length,100000);
 const z=await util.promisify(zlib.gzip)(Buffer.alloc(1e6,'abc'));assert.equal((await util.promisify(zlib.gunzip)(z)).length,1e6);mark('crypto');
}
async function files(){
 const p=TMP+'/fd';fs.mkdirSync(p,{recursive:true});await Promise.all(Array.from({length:200},(_,i)=>fs.promises.writeFile(p+'/'+i,'x'.repeat(i*100))));
 const l=await fs.promises.readdir(p,{withFileTypes:true});assert.equal(l.length,200);
 const st=await Promise.all(l.map(e=>fs.promises.stat(p+'/'+e.name)));assert.equal(st.reduce((a,s)=>a+s.size,0),1990000);
 await new Promise((r,n)=>fs.createReadStream(p+'/199').pipe(fs.createWriteStream(TMP+'/copy')).on('finish',r).on('error',n));assert.equal(fs.statSync(TMP+'/copy').size,19900);
 fs.cpSync(p,TMP+'/fd2',{recursive:true});assert.equal(fs.readdirSync(TMP+'/fd2').length,200);fs.rmSync(p,{recursive:true});mark('fs');
}
async function misc(){
 assert(os.cpus().length>=1&&os.totalmem()>0&&os.freemem()>0);os.networkInterfaces();os.loadavg();os.hostname();process.memoryUsage();process.resourceUsage();
 const dns=require('dns');assert.equal((await dns.promises.lookup('localhost',{family:4})).address,'127.0.0.1');
 let keep=[];for(let i=0;i<200;i++){keep.push(new Array(20000).fill(i));if(keep.length>20)keep.shift()}
 const alive=setInterval(()=>0,100);const e=new Promise(r=>process.on('SIGUSR2',r));process.kill(process.pid,'SIGUSR2');await e;clearInterval(alive);
 const net=require('net');await new Promise((r,n)=>{const s=net.createServer(c=>c.pipe(c)).listen(TMP+'/s.sock',()=>{const c=net.connect(TMP+'/s.sock');let g=0;c.on('data',d=>{g+=d.length;if(g==1e6){c.end();s.close();r()}});c.write(Buffer.alloc(1e6))})});
 const u=require('dgram').createSocket('udp4');await new Promise(r=>{u.on('message',r);u.bind(0,'127.0.0.1',()=>u.send('x',u.address().port,'127.0.0.1'))});u.close();
 mark('misc');
}
(async()=>{const only=process.argv[2];for(const f of [server,workers,children,watch,timers,cryp,files,misc])if(!only||f.name==only){const t=Date.now();await f();console.error(f.name,Date.now()-t,'ms')}})().catch(e=>{console.error(e);process.exit(1)});
